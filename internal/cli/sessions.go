package cli

import (
	"cmp"
	"fmt"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/harness"
	"signalbox/internal/wire"
)

// newSessionsLs lists one page of sessions, by when they began.
func newSessionsLs(a *command.App) *command.Command {
	c := a.Listing("List sessions, the newest first")
	workspace := onlyWorkspaceFlag(c)
	limit := c.Flags().Int("limit", 50, "how many at most")
	user := c.Flags().String("user", "",
		"only sessions in which something was done on behalf of this user: a name, an id or an e-mail")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"limit": *limit, "workspace": *workspace, "user": *user}
		return command.Ask(c.Context(), a, api.Find("/ops/sessions", q),
			func(w output.Printer, page harness.SessionPage) {
				rows := output.Rows(page.Sessions, func(s harness.Session) []string {
					return []string{
						s.ID, s.Agent, sessionState(s), output.Since(s.OpenedAt), output.Since(s.LastAt), fmt.Sprint(s.Errors),
					}
				})
				none := "There are no sessions. `signalbox hook install claude-code` supervises Claude Code."
				if *user != "" {
					none = "In no session was anything done on behalf of " + *user + "."
				}
				w.Table(none,
					[]string{"ID", "AGENT", "STATE", "BEGAN", "LAST STEP", "ERRORS"}, rows)
			})
	}
	return c
}

// sessionState tells three states apart: a session that ended, one that is open, and an open one
// whose heartbeats stopped.
func sessionState(s harness.Session) string {
	switch {
	case s.EndedAt != nil:
		return "ended"
	case s.Heartbeat != nil && s.Heartbeat.Missed:
		return "silent"
	}
	return "open"
}

// newSessionsShow shows the steps of one session. A session's id is chosen by its agent
// and may exist in several workspaces, hence the flag.
func newSessionsShow(a *command.App) *command.Command {
	c := a.About("show SESSION_ID", "Show a session with its steps, the newest first",
		"the id of a session, from `signalbox sessions ls`")
	workspace := onlyWorkspaceFlag(c)
	limit := c.Flags().Int("limit", 50, "how many steps at most")
	c.RunE = func(c *command.Command, args []string) error {
		q := api.Query{"limit": *limit, "workspace": *workspace}
		return command.Ask(c.Context(), a, api.Find(api.Path("/ops/sessions/{}", args[0]), q), printSession)
	}
	return c
}

// printSession prints the timeline. A step is a line: number of its entry, time, type,
// decision, and the reason or else the rule that decided.
func printSession(w output.Printer, s harness.Session) {
	w.Field("session", s.ID)
	w.Field("agent", s.Workspace+"/"+s.Agent)
	w.Field("state", sessionState(s))
	w.Field("began", output.Moment(s.OpenedAt))
	w.Field("errors", fmt.Sprint(s.Errors))
	for _, m := range s.Timeline {
		var answer struct {
			Decision string `json:"decision"`
			Reason   string `json:"reason"`
		}
		_ = wire.UnmarshalPart(m.Answer, &answer) // a moment without an answer has no decision to show
		w.Line(fmt.Sprintf("%8d  %s  %-18s %-9s %s", m.Seq, output.Moment(m.At),
			cmp.Or(string(m.Type), m.Kind), answer.Decision, cmp.Or(answer.Reason, m.Rule)))
	}
	if s.Next != "" {
		w.Print("There are more steps; --limit shows up to 1,000.")
	}
}
