package cli

import (
	"cmp"
	"fmt"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/handoff"
	"signalbox/internal/policy"
)

// newHandoffsLs lists one page of handoffs.
func newHandoffsLs(a *command.App) *command.Command {
	c := a.Listing("List the handoffs that are open, the newest first")
	c.Example = "  signalbox handoffs ls --agent lead-agent\n  signalbox handoffs ls --user alice --all"
	workspace := onlyWorkspaceFlag(c)
	agent := c.Flags().String("agent", "", "only those that this agent has given or got: a name or an id")
	user := c.Flags().String("user", "", "only those on behalf of this user: a name, an id or an e-mail")
	work := c.Flags().String("work", "", "only those for this piece of work, such as the id of a task")
	all := c.Flags().Bool("all", false, "those that are over too")
	limit := c.Flags().Int("limit", 50, "how many at most")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"workspace": *workspace, "agent": *agent, "user": *user, "work": *work, "limit": *limit}
		if *all {
			q["all"] = "true"
		}
		return command.Ask(c.Context(), a, api.Find("/ops/handoffs", q), func(w output.Printer, page handoff.Page) {
			none := "No work is handed on. With --all, what is over is listed too."
			if *all {
				none = "No work was handed on."
			}
			w.Table(none, []string{"ID", "FROM → TO", "FOR", "DEPTH", "WORK", "UNTIL", "STATE"},
				output.Rows(page.Handoffs, func(h handoff.Handoff) []string {
					return []string{
						h.ID, h.From + " → " + h.To, cmp.Or(h.User, "nobody"), fmt.Sprint(h.Depth), cmp.Or(h.Work, "-"),
						output.Moment(h.EndsAt), handoffState(&h),
					}
				}))
			if page.Next != "" {
				w.Print("There are more; --limit shows up to 1,000.")
			}
		})
	}
	return c
}

// handoffState is whether something can still be done under a handoff.
func handoffState(h *handoff.Handoff) string {
	switch {
	case h.EndedAt != nil:
		return "ended"
	case h.Over != "":
		return "over"
	}
	return "open"
}

const handoffArgument = "the id of a handoff, from `signalbox handoffs ls`"

// newHandoffsShow shows the chain.
func newHandoffsShow(a *command.App) *command.Command {
	c := a.About("show HANDOFF_ID", "Show a handoff with all above it, and what remains allowed at each hop",
		handoffArgument)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Get(api.Path("/ops/handoffs/{}", args[0])), printChain)
	}
	return c
}

// printChain prints a chain as a tree: who began is at the left, and every hop is under the one that it came from.
func printChain(w output.Printer, c handoff.Chain) {
	for i := range c.Chain {
		h := &c.Chain[i]
		in := strings.Repeat("   ", i)
		if i == 0 {
			w.Print("%s, for %s", h.From, cmp.Or(h.User, "nobody"))
		}
		w.Print("%s└─ %s  %s", in, h.To, h.ID)
		in += "   "
		field := func(name, value string) {
			if value != "" {
				w.Print("%s%-8s %s", in, name, value)
			}
		}
		field("state", chainState(h))
		field("depth", fmt.Sprint(h.Depth))
		field("scopes", listOrAll(h.Scopes, "every scope of who handed it on"))
		field("tools", listOrAll(h.Tools, "every tool"))
		field("budget", budgetText(h))
		field("work", h.Work)
		field("session", sessionText(h))
		field("until", output.Moment(h.EndsAt))
	}
}

// chainState is the state with who ended it and why.
func chainState(h *handoff.Handoff) string {
	state := handoffState(h)
	switch {
	case h.EndedAt != nil:
		state += " " + output.Moment(*h.EndedAt) + " by " + h.EndedBy
		if h.Reason != "" {
			state += ": " + h.Reason
		}
	case h.Over != "":
		state += ": " + h.Over
	}
	return state
}

// listOrAll is a list for people; one that is absent has everything, and an empty one nothing.
func listOrAll(list []string, all string) string {
	if list == nil {
		return all
	}
	return cmp.Or(strings.Join(list, " "), "none")
}

// budgetText is each limit with what was used of it, which is known while the handoff is open.
func budgetText(h *handoff.Handoff) string {
	var parts []string
	add := func(what, limit, used string) {
		if h.Over == "" {
			limit = used + " of " + limit
		}
		parts = append(parts, limit+" "+what)
	}
	b, s := h.Budget, h.Spent
	if b == (policy.Budget{}) {
		return "no limit of its own"
	}
	if b.Calls > 0 {
		add("calls", output.Thousands(b.Calls), output.Thousands(s.Calls))
	}
	if b.Tokens > 0 {
		add("tokens", output.Thousands(b.Tokens), output.Thousands(s.Tokens))
	}
	if b.CostUSD > 0 {
		add("dollars", fmt.Sprint(b.CostUSD), fmt.Sprintf("%.4g", s.CostUSD))
	}
	return strings.Join(parts, ", ")
}

// sessionText is the session that has the handoff, if only one can have it.
func sessionText(h *handoff.Handoff) string {
	switch {
	case !h.Bound:
		return ""
	case h.Session == "":
		return "the first that uses it"
	}
	return h.Session
}

// newHandoffsEnd ends one at once.
func newHandoffsEnd(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "end HANDOFF_ID", Short: "End a handoff, and all below it, at once",
		Long:    "End a handoff, and all below it, at once. The next call under any of them is refused, and says why.",
		Args:    command.Exactly(1, handoffArgument),
		Example: `  signalbox handoffs end handoff_01… --reason "the task is done"`,
	})
	reason := c.Flags().String("reason", "", "why, for the agents and for the ledger")
	c.RunE = func(c *command.Command, args []string) error {
		r := api.Post(api.Path("/ops/handoffs/{}/end", args[0]), handoff.Ending{Reason: *reason})
		return command.Ask(c.Context(), a, r, func(w output.Printer, h handoff.Handoff) {
			w.Print("%s is over, and all below it. %s can do nothing more under it.", h.ID, h.To)
		})
	}
	return c
}
