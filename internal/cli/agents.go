package cli

import (
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/roster"
)

func newAgents(a *app) *cobra.Command {
	return group("agents", "The agents: list, add, show, suspend, remove",
		newAgentsLs(a), newAgentsAdd(a), newAgentsShow(a), newAgentsSuspend(a, true), newAgentsSuspend(a, false), newAgentsRm(a))
}

func workspaceFlag(c *cobra.Command) *string {
	return c.Flags().String("workspace", "", "the workspace; default when absent")
}

func agentPath(name, workspace string) string {
	path := "/ops/agents/" + url.PathEscape(name)
	if workspace != "" {
		path += "?workspace=" + url.QueryEscape(workspace)
	}
	return path
}

func newAgentsLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List the agents", Args: exactly(0, "no arguments")})
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, _ []string) error {
		cl, err := a.client()
		if err != nil {
			return err
		}
		all := roster.AgentPage{Agents: []roster.Agent{}}
		for cursor := ""; ; cursor = all.Next {
			var page roster.AgentPage
			q := url.Values{"limit": {"1000"}, "cursor": {cursor}, "workspace": {*workspace}}
			if err := cl.call(c.Context(), "GET", "/ops/agents?"+q.Encode(), nil, &page); err != nil {
				return err
			}
			all.Agents, all.Next = append(all.Agents, page.Agents...), page.Next
			if page.Next == "" {
				break
			}
		}
		return a.show(all, func(w io.Writer) {
			var rows [][]string
			for _, g := range all.Agents {
				rows = append(rows, []string{g.Name, g.Workspace, g.Trust, agentState(g), since(g.AddedAt), labels(g.Labels)})
			}
			none := "There are no agents yet. Add one with `signalbox agents add NAME`."
			if *workspace != "" {
				none = "There are no agents in workspace " + *workspace + "."
			}
			table(w, none, []string{"NAME", "WORKSPACE", "TRUST", "STATE", "ADDED", "LABELS"}, rows)
		})
	}
	return c
}

func agentState(g roster.Agent) string {
	if g.Suspended {
		return "suspended"
	}
	return "active"
}

func labels(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// protocols are what --protocol takes, with the kind of key each one uses.
var protocols = map[string]roster.KeyKind{
	"signal": roster.SignalKey, "proxy": roster.SignalKey, "task": roster.SignalKey,
	"harness": roster.SignalKey, "run": roster.SignalKey, "mail": roster.MailKey,
}

func newAgentsAdd(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "add NAME", Short: "Add an agent and print its keys, this once",
		Example: "  signalbox agents add billing-agent --label team=finance", Args: exactly(1, "the name of the agent"),
	})
	workspace := workspaceFlag(c)
	trust := c.Flags().String("trust", "", "how far it is trusted: "+strings.Join(roster.TrustLevels, ", ")+" (default standard)")
	label := c.Flags().StringArray("label", nil, "a label, as name=value; may be given more than once")
	protocol := c.Flags().String("protocol", "", "print only the key for this protocol: signal, proxy, task, harness, run, mail")
	c.RunE = func(c *cobra.Command, args []string) error {
		in := roster.NewAgent{Name: args[0], Workspace: *workspace, Trust: *trust, Labels: map[string]string{}}
		for _, l := range *label {
			k, v, ok := strings.Cut(l, "=")
			if !ok {
				return usage("A label is given as name=value, such as --label team=finance; this was %q.", l)
			}
			in.Labels[k] = v
		}
		kind, known := protocols[*protocol]
		if *protocol != "" && !known {
			return usage("%q is not a protocol. %s", *protocol, fault.DidYouMean(*protocol, slices.Sorted(maps.Keys(protocols))))
		}
		var added roster.AddedAgent
		if err := a.call(c.Context(), "POST", "/ops/agents", in, &added); err != nil {
			return err
		}
		if known {
			added.Keys = map[roster.KeyKind]string{kind: added.Keys[kind]}
		}
		return a.show(added, func(w io.Writer) {
			_, _ = fmt.Fprintf(w, "Added %s to workspace %s. Its keys are shown this once:\n", added.Agent.Name, added.Agent.Workspace)
			for _, k := range slices.Sorted(maps.Keys(added.Keys)) {
				_, _ = fmt.Fprintf(w, "  %-7s %s\n", k, added.Keys[k])
			}
		})
	}
	return c
}

func newAgentsShow(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "show NAME", Short: "Show one agent", Args: exactly(1, "the name of the agent")})
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var g roster.Agent
		if err := a.call(c.Context(), "GET", agentPath(args[0], *workspace), nil, &g); err != nil {
			return err
		}
		return a.show(g, func(w io.Writer) { printAgent(w, g) })
	}
	return c
}

func printAgent(w io.Writer, g roster.Agent) {
	_, _ = fmt.Fprintf(w, "name       %s\nid         %s\nworkspace  %s\ntrust      %s\nstate      %s\nadded      %s (%s)\nlabels     %s\n",
		g.Name, g.ID, g.Workspace, g.Trust, agentState(g), g.AddedAt.Format("2006-01-02 15:04:05 MST"), since(g.AddedAt), labels(g.Labels))
}

func newAgentsSuspend(a *app, suspend bool) *cobra.Command {
	use, short, done := "suspend NAME", "Refuse an agent's keys until it is resumed", "%s is suspended: its keys are refused.\n"
	if !suspend {
		use, short, done = "resume NAME", "Let a suspended agent go on", "%s may go on.\n"
	}
	c := a.withJSON(&cobra.Command{Use: use, Short: short, Args: exactly(1, "the name of the agent")})
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		var g roster.Agent
		if err := a.call(c.Context(), "PATCH", agentPath(args[0], *workspace), roster.AgentChange{Suspended: &suspend}, &g); err != nil {
			return err
		}
		return a.show(g, func(w io.Writer) { _, _ = fmt.Fprintf(w, done, g.Name) })
	}
	return c
}

func newAgentsRm(a *app) *cobra.Command {
	c := &cobra.Command{Use: "rm NAME", Short: "Remove an agent and its keys; what it did stays in the ledger", Args: exactly(1, "the name of the agent")}
	workspace := workspaceFlag(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := a.call(c.Context(), "DELETE", agentPath(args[0], *workspace), nil, nil); err != nil {
			return err
		}
		_, _ = fmt.Fprintf(a.out, "Removed %s and its keys.\n", args[0])
		return nil
	}
	return c
}
