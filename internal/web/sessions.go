package web

import (
	"net/url"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/harness"
	"signalbox/internal/wire"
)

func sessionPages() []Page {
	live := []string{"session", "step"}
	return []Page{
		{Path: string(address.Sessions), Template: "sessions", Title: "Sessions", Live: live, Load: (*Web).loadSessions},
		{
			Path: string(address.Session), Template: "session", Title: "Session", Section: string(address.Sessions), Live: live,
			Load: (*Web).loadSession,
		},
	}
}

// sessionList is the sessions of a workspace.
type sessionList struct {
	place
	Agent    string
	Sessions []harness.Session
	Next     string
}

// Link leads to a session, whatever its id is made of.
func (sessionList) Link(s harness.Session) string {
	return address.Session.At(s.Workspace, s.ID) + "?agent=" + url.QueryEscape(s.AgentID)
}

const (
	sessionRows  = 50
	sessionSteps = 40
)

func (w *Web) loadSessions(r *Request) (any, error) {
	v := &sessionList{Agent: r.Query("agent")}
	var err error
	if v.place, err = w.place(r); err != nil {
		return nil, err
	}
	page, err := w.Harness.Sessions(r.Context(),
		harness.SessionFilter{Workspace: v.Workspace, Agent: v.Agent, Cursor: r.Query("cursor"), Limit: sessionRows})
	v.Sessions, v.Next = page.Sessions, older(r, page.Next)
	return v, err
}

// session is one session, with what agents tell of their work read for people.
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
}

type todo struct {
	ID     string   `json:"id"`
	Title  string   `json:"title"`
	Status string   `json:"status"`
	After  []string `json:"depends_on"`
	Error  string   `json:"error"`
}

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
	What string // what the agent did, in a line
	Say  string // the answer's reason
}

// PageTitle is the session's id.
func (s *session) PageTitle() string { return cut(60, s.ID) }

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
	s.Older = older(r, s.Session.Next)
	return s, nil
}

// read takes the reports apart. What an agent has written otherwise is left out.
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

// Done is how many of the tasks are completed, of 100.
func (s *session) Done() int {
	done := 0
	for _, t := range s.Todo {
		if t.Status == "completed" {
			done++
		}
	}
	return 100 * done / max(1, len(s.Todo))
}

// Live reports whether the session goes on, as far as anybody can tell.
func (s *session) Live() bool { return s.EndedAt == nil && s.Heartbeat != nil && !s.Heartbeat.Missed }

func readMoment(m harness.Moment) moment {
	_, verb, _ := strings.Cut(m.Kind, ".")
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
	return out
}

// inShort is what an object of an agent's says, in a line: the members that people look
// for first, or else the text itself.
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
	if len(parts) == 0 {
		return cut(200, string(raw))
	}
	return cut(200, strings.Join(parts, ": "))
}
