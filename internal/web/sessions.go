package web

import (
	"net/url"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/behalf"
	"signalbox/internal/handoff"
	"signalbox/internal/harness"
	"signalbox/internal/harness/spool"
	"signalbox/internal/wire"
)

// sessionList is the sessions of one workspace.
type sessionList struct {
	place
	Agent    string
	User     string // on whose behalf something was done
	Sessions []harness.Session
	Next     string
}

// Link is the page of a session. Ids are the agents' own and may contain anything.
func (sessionList) Link(s harness.Session) string {
	return address.Session.At(s.Workspace, s.ID) + "?agent=" + url.QueryEscape(s.AgentID)
}

const (
	// How many sessions one page lists, and how many steps of a session.
	sessionRows  = 50
	sessionSteps = 40
)

// loadSessions reads a page of sessions.
func (w *Web) loadSessions(r *Request) (any, error) {
	v := &sessionList{Agent: r.Query("agent"), User: r.Query("user")}
	var err error
	if v.place, err = w.place(r); err != nil {
		return nil, err
	}
	page, err := w.Harness.Sessions(r.Context(), harness.SessionFilter{
		Workspace: v.Workspace, Agent: v.Agent, User: v.User, Cursor: r.Query("cursor"), Limit: sessionRows,
	})
	v.Sessions, v.Next = page.Sessions, nextPage(r, page.Next)
	return v, unlessNobody(v.User, err)
}

// session is one session, with the agents' reports read for people: the task list, the checks, the
// newest run, and the timeline of decisions.
type session struct {
	harness.Session
	Todo    []todo
	Checks  []check
	Verdict string // of the verification
	Risks   []string
	Moments []moment
	Older   string
	Alive   string // what the last heartbeat says
	Prompt  string // of the newest run
	Run     string // how it stands
	For     []behalf.Of
	// Handoffs are those that were opened in it, or that it has taken.
	Handoffs []handoff.Handoff
}

// todo is an item of the task list that an agent reports.
type todo struct {
	ID     string   `json:"id"`
	Title  string   `json:"title"`
	Status string   `json:"status"`
	After  []string `json:"depends_on"`
	Error  string   `json:"error"`
}

// check is an item of a verification that an agent reports.
type check struct {
	Subject string `json:"subject"`
	Status  string `json:"status"`
	Command string `json:"command"`
	Message string `json:"message"`
}

// moment is an entry of the timeline.
type moment struct {
	harness.Moment
	Verb string // what became of it
	// Unsupervised is set if the client answered by itself.
	Unsupervised *unsupervised
	What         string // what the agent did, in a line
	Say          string // the answer's reason
}

// unsupervised is a step about which the server could not be asked.
type unsupervised struct {
	*spool.Shown
	Word string // allowed or blocked, in the words of other steps
}

// PageTitle is the session's id.
func (s *session) PageTitle() string { return cut(60, s.ID) }

// loadSession reads a session with a page of its timeline.
func (w *Web) loadSession(r *Request) (any, error) {
	found, err := w.Harness.Session(r.Context(), r.PathValue("id"),
		harness.SessionFilter{
			Workspace: r.PathValue("workspace"), Agent: r.Query("agent"), Cursor: r.Query("cursor"),
			Limit: sessionSteps,
		})
	if err != nil {
		return nil, err
	}
	s := &session{Session: found}
	s.read()
	s.Older = nextPage(r, s.Session.Next)
	if s.For, err = w.Behalf.ForTrace(r.Context(), found.Workspace, found.Trace()); err != nil {
		return nil, err
	}
	s.Handoffs, err = w.handoffsOf(r.Context(), found.Workspace, found.AgentID, found.ID)
	return s, err
}

// read takes the reports apart. Fields of an unexpected form stay empty: agents write these, and
// no protocol binds them.
func (s *session) read() {
	if s.Tasks != nil {
		var list struct {
			Tasks []todo `json:"tasks"`
		}
		_ = wire.UnmarshalPart(s.Tasks.Payload, &list)
		s.Todo = list.Tasks
	}
	if s.Verification != nil {
		var v struct {
			Status string   `json:"status"`
			Checks []check  `json:"checks"`
			Risks  []string `json:"residual_risks"`
		}
		_ = wire.UnmarshalPart(s.Verification.Payload, &v)
		s.Verdict, s.Checks, s.Risks = v.Status, v.Checks, v.Risks
	}
	// The newest run is the one that people look for.
	if n := len(s.Runs); n > 0 {
		var run struct {
			Prompt string `json:"prompt"`
			Status string `json:"status"`
		}
		_ = wire.UnmarshalPart(s.Runs[n-1].Payload, &run)
		s.Prompt, s.Run = limit(run.Prompt), run.Status
	}
	if s.Heartbeat != nil {
		s.Alive = inShort(s.Heartbeat.Payload)
	}
	for _, m := range s.Timeline {
		s.Moments = append(s.Moments, readMoment(m))
	}
}

// Done is how much of the task list is completed, in percent.
func (s *session) Done() int {
	done := 0
	for _, t := range s.Todo {
		if t.Status == "completed" {
			done++
		}
	}
	return 100 * done / max(1, len(s.Todo))
}

// Live reports whether the session goes on, as far as its heartbeats tell. A session that never
// sent one does not count as live.
func (s *session) Live() bool { return s.EndedAt == nil && s.Heartbeat != nil && !s.Heartbeat.Missed }

// readMoment reads an entry of the timeline.
func readMoment(m harness.Moment) moment {
	_, verb, _ := strings.Cut(m.Kind, ".")
	// The verb is the second part of the kind: allowed, blocked, held and so on.
	out := moment{Moment: m, Verb: verb}
	var event struct {
		Payload wire.Raw `json:"payload"`
	}
	if len(m.Event) > 0 && wire.UnmarshalPart(m.Event, &event) == nil {
		out.What = inShort(event.Payload)
	}
	var answer struct {
		Reason string `json:"reason"`
	}
	if len(m.Answer) > 0 && wire.UnmarshalPart(m.Answer, &answer) == nil {
		out.Say = answer.Reason
	}
	if u := m.Unsupervised; u != nil {
		out.Say, out.Unsupervised = u.Reason, &unsupervised{u, "blocked"}
		if u.Decision == "allow" {
			out.Unsupervised.Word = "allowed"
		}
	}
	return out
}

// inShort is what an agent's object says, in one line: the members that people look for first, or
// else the text itself.
func inShort(raw wire.Raw) string {
	var object map[string]any
	if wire.UnmarshalForeign(raw, &object) != nil || len(object) == 0 {
		return cut(200, strings.Trim(string(raw), `"`))
	}
	var parts []string
	if tool, ok := object["tool_name"].(string); ok {
		parts = append(parts, tool)
	}
	if arguments, ok := object["arguments"].(map[string]any); ok {
		// The first of these says what the tool is about to do.
		for _, name := range []string{"command", "path", "file_path", "pattern", "url", "query"} {
			if text, ok := arguments[name].(string); ok {
				parts = append(parts, text)
				break
			}
		}
	}
	for _, name := range []string{
		"message", "prompt", "error", "status", "current_task", "output", "reason",
		"result_summary",
	} {
		if text, ok := object[name].(string); ok && text != "" && len(parts) < 2 {
			parts = append(parts, text)
		}
	}
	for _, name := range []string{"tasks", "checks"} {
		if list, ok := object[name].([]any); ok {
			parts = append(parts, plural(len(list), strings.TrimSuffix(name, "s")))
		}
	}
	// Nothing that we know a name for: show the beginning of the object itself.
	if len(parts) == 0 {
		return cut(200, string(raw))
	}
	return cut(200, strings.Join(parts, ": "))
}
