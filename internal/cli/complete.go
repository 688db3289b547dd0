package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/hook"
	"signalbox/internal/cli/output"
	"signalbox/internal/deliver"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/harness"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/server"
	"signalbox/internal/show"
	"signalbox/internal/task"
)

// completionWait bounds how long the Tab key waits for the server.
const completionWait = 2 * time.Second

// offer returns the values that the shell offers for an argument. It returns nothing
// when the server cannot be reached or refuses the token: an error message in the middle
// of a line that somebody is typing helps nobody.
type offer func(ctx context.Context, a *command.App) []cobra.Completion

// offers maps a placeholder in a usage line (Use: "show GATE_ID") to the values it
// stands for. A placeholder that means different things in different groups has the
// group before it, and that entry wins. Keep placeholders stable: renaming one in a
// usage line silently turns its completion into completion of file names.
var offers = map[string]offer{
	"GATE_ID": fetched("/ops/gates?status=pending&limit=200", func(p gate.GatePage) []cobra.Completion {
		return output.Rows(p.Gates, func(g gate.Gate) cobra.Completion { return described(g.ID, g.Title) })
	}),
	"RUN_ID": fetched("/runs?limit=50", func(p run.Page) []cobra.Completion {
		return output.Rows(p.Runs, func(r run.Run) cobra.Completion { return described(r.ID, r.Prompt) })
	}),
	"TASK": fetched("/amp/tasks?limit=200", func(p task.Page) (found []cobra.Completion) {
		for _, t := range p.Tasks {
			found = append(found, described(t.TaskID, t.Status))
		}
		return found
	}),
	"SESSION_ID": fetched("/ops/sessions?limit=50", func(p harness.SessionPage) []cobra.Completion {
		return output.Rows(p.Sessions, func(s harness.Session) cobra.Completion { return described(s.ID, s.Agent) })
	}),
	"HANDOFF_ID": fetched("/ops/handoffs?limit=50", func(p handoff.Page) []cobra.Completion {
		return output.Rows(p.Handoffs, func(h handoff.Handoff) cobra.Completion {
			return described(h.ID, h.From+" → "+h.To+" "+h.Work)
		})
	}),
	"DELIVERY_ID": fetched("/ops/deliveries?limit=50", func(p deliver.Page) []cobra.Completion {
		return output.Rows(p.Deliveries, func(d deliver.Summary) cobra.Completion {
			return described(d.ID, d.Status+" "+d.Target)
		})
	}),
	"KEY_ID": fetched("/ops/keys?limit=200", func(p roster.KeyPage) []cobra.Completion {
		return output.Rows(p.Keys, func(k roster.Key) cobra.Completion { return described(k.ID, holder(k)) })
	}),
	"AGENT":          agentNames,
	"WORKSPACE":      workspaceNames,
	"agents NAME":    agentNames,
	"proxy NAME":     agentNames,
	"operators NAME": fetched("/ops/operators", operatorNames),
	"users NAME":     userNames,
	"hook NAME":      fixed(hook.Names()...),
	"ENGINE":         fixed(engine.Names()...),
	"config KEY":     fixed(server.Keys()...),
	"PROVIDER":       fixed("anthropic", "openai"),
}

// flagOffers maps the name of a flag to the values that the shell offers for it, in
// every command that has the flag. A flag of the same name must therefore mean the same
// everywhere.
var flagOffers = map[string]offer{
	"agent":     agentNames,
	"workspace": workspaceNames,
	"open-to":   workspaceNames,
	"engine":    fixed(engine.Names()...),
}

// workspaceNames offers the workspaces that the operator may see.
var workspaceNames = fetched("/ops/workspaces", func(l roster.WorkspaceList) []cobra.Completion {
	return output.Rows(l.Workspaces, func(name string) cobra.Completion { return name })
})

// agentNames offers the agents of all workspaces that the operator may see. The
// workspace is shown beside the name, since the same name may occur in several.
var agentNames = fetched("/ops/agents?limit=1000", func(p roster.AgentPage) []cobra.Completion {
	return output.Rows(p.Agents, func(g roster.Agent) cobra.Completion { return described(g.Name, g.Workspace) })
})

// userNames offers the users that the operator may see.
var userNames = fetched("/ops/users", func(l roster.UserList) []cobra.Completion {
	return output.Rows(l.Users, func(u roster.User) cobra.Completion { return described(u.Name, u.Workspace) })
})

// operatorNames offers operators with their role, by which people tell them apart.
func operatorNames(l roster.OperatorList) []cobra.Completion {
	return output.Rows(l.Operators, func(p roster.Person) cobra.Completion { return described(p.Name, string(p.Role)) })
}

// described is a value with a text beside it. Agents write titles and prompts, and choose
// some of the ids, so control characters are replaced in both.
func described(value, text string) cobra.Completion {
	return cobra.CompletionWithDesc(show.Text(value), output.Shorten(show.Text(output.OneLine(text)), 60))
}

// fixed always offers the same words. It needs no server.
func fixed(words ...string) offer {
	return func(context.Context, *command.App) []cobra.Completion { return words }
}

// fetched offers a list from the server. One page is enough: nobody picks from more than
// that with the Tab key. It gives up after completionWait.
func fetched[T any](path string, list func(T) []cobra.Completion) offer {
	return func(ctx context.Context, a *command.App) []cobra.Completion {
		ctx, cancel := context.WithTimeout(ctx, completionWait)
		defer cancel()
		var page T
		if err := a.Call(ctx, api.Get(path), &page); err != nil {
			return nil
		}
		return list(page)
	}
}

// complete installs completion in a command and all below it. It does not override a
// command that brings its own. Arguments of `add` are skipped, because the name of a
// thing that does not exist yet cannot be offered.
func complete(a *command.App, c *cobra.Command) {
	words := strings.Fields(c.Use)
	group := ""
	if c.HasParent() {
		group = c.Parent().Name()
	}
	if c.ValidArgsFunction == nil && len(words) > 1 && c.Name() != "add" {
		c.ValidArgsFunction = arguments(a, group, words[1:])
	}
	for name, o := range flagOffers {
		if c.LocalFlags().Lookup(name) == nil {
			continue
		}
		// The only possible error is a flag that is registered twice, or is missing; it
		// was just looked up.
		_ = c.RegisterFlagCompletionFunc(name,
			func(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
				return o(c.Context(), a), cobra.ShellCompDirectiveNoFileComp
			})
	}
	for _, sub := range c.Commands() {
		complete(a, sub)
	}
}

// arguments completes the arguments that the placeholders of a usage line name, in their order.
// The last placeholder repeats if it ends with dots. For a placeholder without an offer, such as
// FILE, the shell offers files.
func arguments(a *command.App, group string, placeholders []string) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		at := min(len(args), len(placeholders)-1)
		name := strings.Trim(placeholders[at], "[].")
		if at < len(args) && !strings.Contains(placeholders[at], "...") {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		o := offers[group+" "+name]
		if o == nil {
			o = offers[name]
		}
		if o == nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		return o(c.Context(), a), cobra.ShellCompDirectiveNoFileComp
	}
}
