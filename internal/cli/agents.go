package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/internal/roster"
)

func newAgents(a *app) *cobra.Command {
	return group("agents", "The agents: list, add, show, change, suspend, remove",
		newAgentsLs(a), newAgentsAdd(a), newAgentsShow(a), newAgentsSet(a), newAgentsSuspend(a, true), newAgentsSuspend(a, false), newAgentsRm(a))
}

func workspaceFlag(c *cobra.Command) *string {
	return c.Flags().String("workspace", "", "the workspace; default when absent")
}

func agentPath(name, workspace string) string {
	return inWorkspace("/ops/agents/"+url.PathEscape(name), workspace)
}

// inWorkspace adds the workspace to a path, if there is one.
func inWorkspace(path, workspace string) string {
	if workspace == "" {
		return path
	}
	return path + "?workspace=" + url.QueryEscape(workspace)
}

func newAgentsLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List the agents", Args: exactly(0, "no arguments")})
	workspace := c.Flags().String("workspace", "", "only those of this workspace")
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
				rows = append(rows, []string{g.Name, g.Workspace, g.Trust, agentState(g), agentSeen(g), since(g.AddedAt), labels(g.Labels)})
			}
			none := "There are no agents yet. Add one with `signalbox agents add NAME`."
			if *workspace != "" {
				none = "There are no agents in workspace " + *workspace + "."
			}
			table(w, none, []string{"NAME", "WORKSPACE", "TRUST", "STATE", "SEEN", "ADDED", "LABELS"}, rows)
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

func agentSeen(g roster.Agent) string {
	switch {
	case g.Online:
		return "online"
	case g.LastSeenAt == nil:
		return "never"
	}
	return since(*g.LastSeenAt)
}

func labels(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
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
		{"trust", g.Trust},
		{"state", agentState(g)},
		{"seen", agentSeen(g)},
		{"limit", limit},
		{"added", g.AddedAt.Format("2006-01-02 15:04:05 MST") + " (" + since(g.AddedAt) + ")"},
		{"labels", labels(g.Labels)},
	} {
		_, _ = fmt.Fprintf(w, "%-10s %s\n", row[0], printable(cmp.Or(row[1], "none")))
	}
	for _, k := range g.PublicKeys {
		until := ""
		if k.RetiredAt != nil {
			until = " (retired " + since(*k.RetiredAt) + ")"
		}
		_, _ = fmt.Fprintf(w, "%-10s %s%s\n", "public key", k.Fingerprint, until)
	}
}

func newAgentsSuspend(a *app, suspend bool) *cobra.Command {
	use, short, done := "suspend NAME", "Block what an agent does until it is resumed", "%s is suspended: what it does is blocked.\n"
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
