package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/roster"
)

// agentArgument completes the usage error "`signalbox agents show` takes …".
const agentArgument = "the name of the agent"

// newAgentsLs lists all agents, however many there are. It asks for the largest page
// that the server allows and reads on to the end, because the output is often piped into
// a program that would take a first page for the whole list.
func newAgentsLs(a *command.App) *command.Command {
	c := a.Listing("List the agents")
	workspace := onlyWorkspaceFlag(c)
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"limit": 1000, "workspace": *workspace}
		agents, err := command.Collect(c.Context(), a, "/ops/agents", q,
			func(page roster.AgentPage) ([]roster.Agent, string) { return page.Agents, page.Next })
		if err != nil {
			return err
		}
		return a.Show(roster.AgentPage{Agents: agents}, func(w output.Printer) {
			rows := output.Rows(agents, func(g roster.Agent) []string {
				return []string{
					g.Name, g.Workspace, g.Trust, agentState(g), output.Seen(g.Online, g.LastSeenAt),
					output.Since(g.AddedAt), labels(g.Labels),
				}
			})
			// An empty list has two meanings. A newcomer needs the command that adds an
			// agent; somebody who has narrowed the list to a workspace needs to see that
			// the workspace is empty.
			none := "There are no agents yet. Add one with `signalbox agents add NAME`."
			if *workspace != "" {
				none = "There are no agents in workspace " + *workspace + "."
			}
			w.Table(none, []string{"NAME", "WORKSPACE", "TRUST", "STATE", "SEEN", "ADDED", "LABELS"}, rows)
		})
	}
	return c
}

// agentState is the word for the state of an agent. An agent that was removed is not
// listed at all, so there are only two.
func agentState(g roster.Agent) string {
	if g.Suspended {
		return "suspended"
	}
	return "active"
}

// labels prints labels sorted by name. Maps have no order, and two calls with the same
// answer must print the same text.
func labels(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// newAgentsShow shows one agent. An agent is named by its name and its workspace: the
// same name may exist in every workspace.
func newAgentsShow(a *command.App) *command.Command {
	c := a.About("show NAME", "Show one agent", agentArgument)
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Get(api.AgentPath(args[0], *workspace)), printAgent)
	}
	return c
}

// ownerOf is the owner of an agent, for the list of those for whom it acts.
func ownerOf(g roster.Agent) []string {
	if g.Owner == "" {
		return nil
	}
	return []string{g.Owner}
}

// agentScopes is what an agent may do at the most.
func agentScopes(g roster.Agent) string {
	if g.Scopes == nil {
		return "*"
	}
	return scopesText(g.Scopes)
}

// printAgent prints an agent in two columns. Values that agents or their owners chose go
// through output.Printable, so that a name cannot move the cursor.
func printAgent(w output.Printer, g roster.Agent) {
	// Three cases: no limit of its own (the server's default applies), 0 (unlimited), a
	// number.
	limit := "default"
	if g.RateLimit != nil {
		limit = fmt.Sprintf("%d a minute", *g.RateLimit)
		if *g.RateLimit == 0 {
			limit = "none"
		}
	}
	for _, row := range [][2]string{
		{"name", g.Name},
		{"id", g.ID},
		{"workspace", g.Workspace},
		{"address", g.Address},
		{"owner", g.Owner},
		{"acts for", strings.Join(append(ownerOf(g), g.ActsFor...), ", ")},
		{"scopes", agentScopes(g)},
		{"client", g.OIDCClient},
		{"trust", g.Trust},
		{"state", agentState(g)},
		{"seen", output.Seen(g.Online, g.LastSeenAt)},
		{"limit", limit},
		{"added", g.AddedAt.Format("2006-01-02 15:04:05 MST") + " (" + output.Since(g.AddedAt) + ")"},
		{"labels", labels(g.Labels)},
	} {
		w.Print("%-10s %s", row[0], cmp.Or(row[1], "none"))
	}
	// Retired keys stay listed: others still verify with them what the agent signed
	// earlier.
	for _, k := range g.PublicKeys {
		until := ""
		if k.RetiredAt != nil {
			until = " (retired " + output.Since(*k.RetiredAt) + ")"
		}
		w.Print("%-10s %s%s", "public key", k.Fingerprint, until)
	}
}

// newAgentsSuspend is `suspend` or, with suspend false, `resume`. A suspended agent
// keeps its keys and may still call the server, but the policy is not asked: every call
// that needs a decision is blocked. Decisions that were taken before stay valid in the
// ledger.
func newAgentsSuspend(a *command.App, suspend bool) *command.Command {
	use, short, done := "suspend NAME", "Block an agent until it is resumed", "%s is suspended: its actions are blocked."
	if !suspend {
		use, short, done = "resume NAME", "Resume a suspended agent", "%s is resumed."
	}
	c := a.About(use, short, agentArgument)
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		r := api.Patch(api.AgentPath(args[0], *workspace), roster.AgentChange{Suspended: &suspend})
		return command.Ask(c.Context(), a, r, func(w output.Printer, g roster.Agent) { w.Print(done, g.Name) })
	}
	return c
}

// newAgentsRm removes an agent. Its keys stop working at once. Its entries stay: the
// ledger is append-only, and removing is itself an entry.
func newAgentsRm(a *command.App) *command.Command {
	c := &command.Command{
		Use: "rm NAME", Short: "Remove an agent and its keys; its entries stay in the ledger",
		Args: command.Exactly(1, agentArgument),
	}
	workspace := workspaceFlag(c)
	c.RunE = func(c *command.Command, args []string) error {
		return remove(c, a, api.AgentPath(args[0], *workspace), "Removed "+args[0]+" and its keys.")
	}
	return c
}
