package task

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Routes are the calls of AMP/1.0 tasks.
func (s *Tasks) Routes() []wire.Route {
	inWorkspace := wire.Param{Name: "workspace", Meaning: "the workspace of the tasks, for operators; default when absent"}
	post := func(path, summary string, auth wire.Auth, kind Kind) wire.Route {
		return wire.Route{Method: "POST", Path: path, Summary: summary, Auth: auth, Query: []wire.Param{inWorkspace}, RequestMedia: "application/json", Answer: Answer{}, Status: http.StatusAccepted, Handle: s.post(kind)}
	}
	return []wire.Route{
		post("/amp/messages", "Send one of the five messages; 202 when it is stored, 200 when it was before", wire.Party, InMessage),
		post("/amp/messages/{msg_id}/ack", "Acknowledge a message, or refuse it", wire.Party, InAck),
		post("/amp/heartbeats", "Say that work on a task goes on", wire.Agent, InHeartbeat),
		post("/amp/tasks/{task_id}/instructions", "Instruct as the admin: resume, terminate, approve_plan and others", wire.Operator, InInstruction),
		{Method: "GET", Path: "/amp/messages", Summary: "The messages that wait for a role; reading is not acknowledging", Auth: wire.Party, Answer: Inbox{}, Handle: s.getMessages, Query: []wire.Param{
			{Name: "to", Meaning: "the role; your own when absent"},
			{Name: "wait", Meaning: "how long to wait for a message, such as 30s; 55s at most"},
			{Name: "after", Meaning: "everything after this entry, acknowledged or not; what waits when absent", Number: true},
			{Name: "limit", Meaning: "how many at the most; 100 when absent", Number: true},
			inWorkspace,
		}},
		{Method: "GET", Path: "/amp/tasks", Summary: "The board: tasks, those that changed last first, and how many there are of each status", Auth: wire.Party, Query: append(slices.Clone(wire.PageParams), wire.Param{Name: "status", Meaning: "only tasks of this status"}, inWorkspace), Answer: Page{}, Handle: s.getTasks},
		{Method: "GET", Path: "/amp/tasks/{task_id}", Summary: "A task as it stands", Auth: wire.Party, Query: []wire.Param{{Name: "messages", Meaning: "true to have every message with it"}, inWorkspace}, Answer: Record{}, Handle: s.getTask},
		{Method: "GET", Path: "/amp/me", Summary: "Who the key is, and the role that it plays in tasks", Auth: wire.Agent, Answer: Me{}, Handle: getMe},
		{Method: "GET", Path: "/amp/tasks/{task_id}/bundle", Summary: "Everything about a task, each entry with a proof that it is in the ledger", Auth: wire.Viewer, Query: []wire.Param{inWorkspace}, Answer: Bundle{}, Handle: s.getBundle},
		{Method: "POST", Path: "/amp/checks", Summary: "The status of a check, as GitHub posts it or in our own form, signed with the workspace's secret", Query: []wire.Param{inWorkspace}, RequestMedia: "application/json", Answer: Checked{}, Handle: s.postChecks},
		{Method: "GET", Path: "/ops/tasks/ci", Summary: "Where checks are posted, and the secret that signs them", Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Answer: CI{}, Handle: s.getCI},
		{Method: "GET", Path: "/ops/tasks/webhooks/{role}", Summary: "Where the messages to a role are sent, with the secret that verifies them", Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Answer: ShownWebhook{}, Handle: s.getHook},
		{Method: "PUT", Path: "/ops/tasks/webhooks/{role}", Summary: "Have the messages to a role sent to an address, too", Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Request: NewWebhook{}, Answer: ShownWebhook{}, Handle: s.putHook},
		{Method: "GET", Path: "/amp/errors", Summary: "What was refused and why, the newest first: an agent sees its own", Auth: wire.Party, Query: append(slices.Clone(wire.PageParams), wire.Param{Name: "task_id", Meaning: "only about this task"}, inWorkspace), Answer: ErrorPage{}, Handle: s.getErrors},
	}
}

// Me is who an agent is.
type Me struct {
	Agent     string `json:"agent"`
	Workspace string `json:"workspace"`
	Role      Role   `json:"role"` // "" for none
}

func getMe(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	role, err := RoleOf(who)
	if err != nil {
		role = "" // it plays none
	}
	return wire.Reply(w, http.StatusOK, Me{who.Name, who.Workspace, role})
}

// party is who calls, with their role; an operator names the workspace.
func party(r *http.Request) (Party, error) {
	who := roster.From(r.Context())
	role, err := RoleOf(who)
	if err != nil {
		return Party{}, err
	}
	workspace, err := roster.QueryWorkspace(r)
	return Party{Identity: who, Role: role, Workspace: workspace, Transport: "http"}, err
}

// reader is who calls, for calls that only read: a viewer may, as the admin does.
func reader(r *http.Request) (Party, error) {
	if who := roster.From(r.Context()); who.Kind == roster.HolderOperator {
		workspace, err := roster.QueryWorkspace(r)
		return Party{Identity: who, Role: Admin, Workspace: workspace, Transport: "http"}, err
	}
	return party(r)
}

// post reads a document and answers it.
func (s *Tasks) post(kind Kind) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		p, err := party(r)
		if err != nil {
			return err
		}
		if err := wire.IsJSON(r); err != nil {
			return err
		}
		raw, err := wire.Read(w, r, MaxDocument)
		var refusal *Refusal
		if fault.Is(err, fault.TooLarge) {
			refusal, err = tooLarge(), nil
		}
		if err != nil {
			return err
		}
		if refusal == nil {
			raw, refusal = s.complete(r, p, kind, raw)
		}
		var answer Answer
		var wrong *ErrorRecord
		if refusal != nil {
			answer, wrong, err = s.refused(r.Context(), p, kind, raw, refusal, nil)
		} else {
			answer, wrong, err = s.Take(r.Context(), p, kind, raw)
		}
		return reply(w, answer, wrong, err)
	}
}

func reply(w http.ResponseWriter, a Answer, wrong *ErrorRecord, err error) error {
	switch {
	case err != nil:
		return err
	case wrong != nil:
		wrong.Raw = "" // its sender has it
		return wire.Reply(w, (&Refusal{wrong.Layer, wrong.Errors}).Status(), wrong)
	case a.Status == "duplicate":
		return wire.Reply(w, http.StatusOK, a)
	}
	return wire.Reply(w, http.StatusAccepted, a)
}

// complete makes a whole document of one that does not say what it is: acks, heartbeats
// and instructions may be sent with nothing but what matters. It refuses one that is
// about something else than the address.
func (s *Tasks) complete(r *http.Request, p Party, kind Kind, raw []byte) ([]byte, *Refusal) {
	if kind == InMessage {
		return raw, nil
	}
	d := documentOf(raw)
	if d.object == nil {
		return raw, nil
	}
	field, named := "task_id", r.PathValue("task_id")
	if kind == InAck {
		field, named = "ack_of", r.PathValue("msg_id")
	}
	if text, given := d.object[field].(string); given && named != "" && text != named {
		return raw, refuse(LayerSemantic, RefMismatch, "/"+field, "The address names "+named+".").expecting(named, named)
	}
	if _, whole := d.object["record"]; whole {
		return raw, nil
	}
	now := s.core.Now().UTC()
	set := func(name string, value any) {
		if _, given := d.object[name]; !given {
			d.object[name] = value
		}
	}
	taskID := r.PathValue("task_id")
	if kind == InAck {
		taskID = taskOf(named)
		set("ack_of", named)
		set("ack_id", fmt.Sprintf("ack-%s-%013d", taskID, now.UnixMilli()))
		set("status", "accepted")
	}
	if kind == InInstruction {
		set("instruction_id", fmt.Sprintf("admin-%s-%013d", taskID, now.UnixMilli()))
		set("channel", "api")
		d.object["actor"] = p.Identity.Name
	}
	d.object["record"] = map[Kind]string{InAck: "ack", InHeartbeat: "heartbeat", InInstruction: "admin_instruction"}[kind]
	set("protocol_version", Version)
	set("timestamp", now.Format(time.RFC3339Nano))
	set("from", string(p.Role))
	if taskID != "" {
		set("task_id", taskID)
	}
	whole, _ := wire.EncodeData(d.object) // it was JSON before
	return whole, nil
}

func (s *Tasks) getMessages(w http.ResponseWriter, r *http.Request) error {
	p, err := reader(r)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	wait, err := waitTime(q.Get("wait"))
	if err != nil {
		return err
	}
	after, err := wire.Number(r, "after", 0)
	if err != nil {
		return err
	}
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	to := p.Role
	if named := q.Get("to"); named != "" {
		to = Role(named)
		if to != Admin && !slices.Contains(AgentRoles, to) {
			return fault.New(fault.InvalidRequest, "to should be admin, coordinator, executor or reviewer, and is %.40q.", named).About("to")
		}
	}
	box, err := s.Wait(r.Context(), p, to, after, limit, wait)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, box)
}

// waitTime reads 30s, or a number of seconds.
func waitTime(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if n, e := strconv.Atoi(text); e == nil {
		d, err = time.Duration(max(-1, min(n, int(maxWait/time.Second))))*time.Second, nil
	}
	if err != nil || d < 0 {
		return 0, fault.New(fault.InvalidRequest, "wait should be a length of time such as 30s, 55s at most, and is %.40q.", text).About("wait")
	}
	return min(d, maxWait), nil
}

func (s *Tasks) getTasks(w http.ResponseWriter, r *http.Request) error {
	p, err := reader(r)
	if err != nil {
		return err
	}
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	cursor, err := wire.ReadCursor(r, 2)
	if err != nil {
		return err
	}
	before := int64(math.MaxInt64)
	if cursor[0] != "" {
		if before, err = strconv.ParseInt(cursor[0], 10, 64); err != nil {
			return wire.BadCursor()
		}
	}
	page, err := s.Board(r.Context(), p.Workspace, r.URL.Query().Get("status"), before, cursor[1], limit)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, page)
}

func (s *Tasks) getTask(w http.ResponseWriter, r *http.Request) error {
	p, err := reader(r)
	if err != nil {
		return err
	}
	t, err := s.Task(r.Context(), p.Workspace, r.PathValue("task_id"))
	if err != nil {
		return err
	}
	out := t.Show(p.Workspace)
	if r.URL.Query().Get("messages") == "true" {
		if out.Messages, err = s.messages(r.Context(), "m.workspace = $1 AND m.task_id = $2 ORDER BY m.seq", p.Workspace, t.ID); err != nil {
			return err
		}
	}
	return wire.Reply(w, http.StatusOK, out)
}

// ErrorPage is a page of the error log.
type ErrorPage struct {
	Errors []ErrorRecord `json:"errors"`
	Next   string        `json:"next"`
}

func (s *Tasks) getErrors(w http.ResponseWriter, r *http.Request) error {
	p, err := reader(r)
	if err != nil {
		return err
	}
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	cursor, err := wire.ReadCursor(r, 1)
	if err != nil {
		return err
	}
	before := int64(math.MaxInt64)
	if cursor[0] != "" {
		if before, err = strconv.ParseInt(cursor[0], 10, 64); err != nil {
			return wire.BadCursor()
		}
	}
	actor := ""
	if p.Role != Admin {
		actor = p.Identity.Actor()
	}
	list, next, err := s.Errors(r.Context(), p.Workspace, actor, r.URL.Query().Get("task_id"), before, limit)
	if err != nil {
		return err
	}
	page := ErrorPage{Errors: list}
	if len(list) == limit {
		page.Next = wire.Cursor(strconv.FormatInt(next, 10))
	}
	return wire.Reply(w, http.StatusOK, page)
}
