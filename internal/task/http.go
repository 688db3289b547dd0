package task

import (
	"cmp"
	"net/http"
	"slices"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/task/amp"
	"signalbox/internal/wire"
)

// Routes are the HTTP calls of AMP/1.0 tasks. Handlers only translate: a document is read up to
// its limit and handed to Send, and everything else calls one method of the service.
func (s *Tasks) Routes() []wire.Route {
	inWorkspace := wire.Param{Name: "workspace", Meaning: "the workspace of the tasks, for operators; default when absent"}
	post := func(path, summary string, auth wire.Auth, kind amp.Kind) wire.Route {
		return wire.Route{
			Method: "POST", Path: path, Summary: summary, Auth: auth, Query: []wire.Param{inWorkspace},
			Request: documents[kind], Answer: Answer{}, Status: http.StatusAccepted, Also: http.StatusOK, Handle: s.post(kind),
		}
	}
	return []wire.Route{
		post("/amp/messages", "Send one of the five messages; 202 when it is stored, 200 when it was before", wire.Party,
			amp.InMessage),
		post("/amp/messages/{msg_id}/ack", "Acknowledge a message, or refuse it", wire.Party, amp.InAck),
		post("/amp/heartbeats", "Say that work on a task goes on", wire.Agent, amp.InHeartbeat),
		post("/amp/tasks/{task_id}/instructions", "Instruct as the admin: resume, terminate, approve_plan and others",
			wire.Operator, amp.InInstruction),
		{
			Method: "GET", Path: "/amp/messages", Summary: "The messages that wait for a role; reading is not acknowledging",
			Auth: wire.Party, Answer: Inbox{}, Handle: wire.Answer(http.StatusOK, s.getMessages), Query: []wire.Param{
				{Name: "to", Meaning: "the role; your own when absent"},
				{Name: "wait", Meaning: "how long to wait for a message, such as 30s; 55s at most"},
				{Name: "after", Meaning: "everything after this entry, acknowledged or not; what waits when absent", Number: true},
				{Name: "limit", Meaning: "how many at the most; 100 when absent", Number: true},
				inWorkspace,
			},
		},
		{
			Method: "GET", Path: "/amp/tasks", Summary: "The board: tasks, those that changed last first, and how " +
				"many there are of each status", Auth: wire.Party,
			Query: append(slices.Clone(wire.PageParams), wire.Param{Name: "status", Meaning: "only tasks of this status"},
				inWorkspace, behalf.UserParams[0], behalf.UserParams[1]), Answer: Page{}, Handle: wire.Answer(http.StatusOK, s.getTasks),
		},
		{
			Method: "GET", Path: "/amp/tasks/{task_id}", Summary: "A task as it stands", Auth: wire.Party,
			Query:  []wire.Param{{Name: "messages", Meaning: "true to have every message with it"}, inWorkspace},
			Answer: amp.Record{}, Handle: wire.Answer(http.StatusOK, s.getTask),
		},
		{
			Method: "GET", Path: "/amp/me", Summary: "Who the key is, and the role that it plays in tasks", Auth: wire.Agent,
			Answer: Me{}, Handle: wire.Answer(http.StatusOK, getMe),
		},
		{
			Method: "GET", Path: "/amp/tasks/{task_id}/bundle",
			Summary: "Everything about a task, each entry with a proof that it is in the ledger", Auth: wire.Viewer,
			Query: []wire.Param{inWorkspace}, Answer: Bundle{}, Handle: wire.Answer(http.StatusOK, s.getBundle),
		},
		{
			Method: "POST", Path: "/amp/checks",
			Summary: "The status of a check, as GitHub posts it or in our own form, signed with the workspace's secret",
			Query:   []wire.Param{inWorkspace}, Request: check{}, Answer: Checked{}, Handle: s.postChecks,
			Proof: []string{wire.Demanded},
		},
		{
			Method: "GET", Path: "/ops/tasks/ci", Summary: "Where checks are posted, and the secret that signs them",
			Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Answer: CI{}, Handle: wire.Answer(http.StatusOK, s.getCI),
		},
		{
			Method: "GET", Path: "/ops/tasks/webhooks/{role}",
			Summary: "Where the messages to a role are sent, with the secret that verifies them", Auth: wire.Operator,
			Query: []wire.Param{inWorkspace}, Answer: ShownWebhook{}, Handle: wire.Answer(http.StatusOK, s.getHook),
		},
		{
			Method: "PUT", Path: "/ops/tasks/webhooks/{role}", Summary: "Have the messages to a role sent to an address, too",
			Auth: wire.Operator, Query: []wire.Param{inWorkspace}, Request: NewWebhook{}, Answer: ShownWebhook{},
			Handle: wire.Take(http.StatusOK, maxSetting, s.putHook),
		},
		{
			Method: "GET", Path: "/amp/errors", Summary: "What was refused and why, the newest first: an agent sees its own",
			Auth: wire.Party, Query: append(slices.Clone(wire.PageParams),
				wire.Param{Name: "task_id", Meaning: "only about this task"}, inWorkspace), Answer: ErrorPage{},
			Handle: wire.Answer(http.StatusOK, s.getErrors),
		},
	}
}

// Me is who a key belongs to.
type Me struct {
	Agent     string   `json:"agent"`
	Workspace string   `json:"workspace"`
	Role      amp.Role `json:"role"` // "" for none
}

// MeOf is who an agent is, and the role that it plays, "" for none.
func MeOf(who roster.Identity) Me {
	role, err := RoleOf(who)
	if err != nil {
		role = "" // it plays none
	}
	return Me{who.Name, who.Workspace, role}
}

func getMe(r *http.Request) (Me, error) { return MeOf(roster.From(r.Context())), nil }

// speaker is who sends a document with a call.
func speaker(r *http.Request) (Party, error) {
	return Speaker(r.Context(), roster.From(r.Context()), r.URL.Query().Get("workspace"), OverHTTP)
}

// reader is who reads with a call.
func reader(r *http.Request) (Party, error) {
	return Reader(r.Context(), roster.From(r.Context()), r.URL.Query().Get("workspace"), OverHTTP)
}

// pageReader is who reads a page with a call, and how long the page is.
func pageReader(r *http.Request) (p Party, limit int, err error) {
	if p, err = reader(r); err == nil {
		limit, err = wire.Limit(r)
	}
	return p, limit, err
}

// post handles the four calls that take a document. A refusal is not an error to the server: it is
// answered in the protocol's own form, with the status of its layer.
func (s *Tasks) post(kind amp.Kind) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		p, err := speaker(r)
		if err != nil {
			return err
		}
		if err := wire.IsJSON(r); err != nil {
			return err
		}
		p.Claim = behalf.Header(r.Header).Claim
		d := Document{Kind: kind, About: cmp.Or(r.PathValue("task_id"), r.PathValue("msg_id"))}
		d.Raw, err = wire.Read(w, r, amp.MaxDocument)
		// A document that is too large still reaches Send, which records the refusal.
		if d.TooLarge = fault.Is(err, fault.TooLarge); err != nil && !d.TooLarge {
			return err
		}
		answer, wrong, err := s.Send(r.Context(), p, d)
		switch {
		case err != nil:
			return err
		case wrong != nil:
			return wire.Reply(w, wrong.Status(), wrong)
		case answer.Status == Duplicate:
			return wire.Reply(w, http.StatusOK, answer)
		}
		return wire.Reply(w, http.StatusAccepted, answer)
	}
}

// getMessages is the inbox; it holds the call for as long as wait says.
func (s *Tasks) getMessages(r *http.Request) (Inbox, error) {
	p, err := reader(r)
	if err != nil {
		return Inbox{}, err
	}
	wait, err := wire.QueryWait(r, maxWait)
	if err != nil {
		return Inbox{}, err
	}
	after, err := wire.Number(r, "after", 0)
	if err != nil {
		return Inbox{}, err
	}
	limit, err := wire.Limit(r)
	if err != nil {
		return Inbox{}, err
	}
	return s.Wait(r.Context(), p, amp.Role(r.URL.Query().Get("to")), after, limit, wait)
}

// getTasks is a page of the board.
func (s *Tasks) getTasks(r *http.Request) (Page, error) {
	p, limit, err := pageReader(r)
	if err != nil {
		return Page{}, err
	}
	f := Filter{Status: r.URL.Query().Get("status")}
	if f.User, f.Claimed, err = behalf.Asked(r); err != nil {
		return Page{}, err
	}
	return s.List(r.Context(), p, f, r.URL.Query().Get("cursor"), limit)
}

// getTask is one task, with its messages if asked for.
func (s *Tasks) getTask(r *http.Request) (amp.Record, error) {
	p, err := reader(r)
	if err != nil {
		return amp.Record{}, err
	}
	return s.Show(r.Context(), p, r.PathValue("task_id"), r.URL.Query().Get("messages") == "true")
}

// getErrors is a page of the error log.
func (s *Tasks) getErrors(r *http.Request) (ErrorPage, error) {
	p, limit, err := pageReader(r)
	if err != nil {
		return ErrorPage{}, err
	}
	return s.ListErrors(r.Context(), p, r.URL.Query().Get("task_id"), r.URL.Query().Get("cursor"), limit)
}

// getBundle is a task with proofs, for viewers and above: it holds what all roles wrote, and
// agents see their own only.
func (s *Tasks) getBundle(r *http.Request) (*Bundle, error) {
	workspace, err := roster.QueryWorkspace(r)
	if err != nil {
		return nil, err
	}
	return s.Bundle(r.Context(), workspace, r.PathValue("task_id"))
}

// getCI shows where checks are posted, with the secret.
func (s *Tasks) getCI(r *http.Request) (CI, error) {
	workspace, err := roster.QueryWorkspace(r)
	return s.CI(workspace), err
}

// postChecks takes the status of a check. The sender has no key but signs the body with the secret
// of the workspace, as GitHub does.
func (s *Tasks) postChecks(w http.ResponseWriter, r *http.Request) error {
	body, err := wire.Read(w, r, amp.MaxDocument)
	if err != nil {
		return err
	}
	out, err := s.TakeChecks(r.Context(), r.URL.Query().Get("workspace"), r.Header.Get(githubEvent),
		r.Header.Get("X-Hub-Signature-256"), body)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, out)
}

// getHook shows the webhook of a role.
func (s *Tasks) getHook(r *http.Request) (ShownWebhook, error) {
	return s.Webhook(r.Context(), r.URL.Query().Get("workspace"), amp.Role(r.PathValue("role")))
}

// putHook sets the webhook of a role.
func (s *Tasks) putHook(r *http.Request, in NewWebhook) (ShownWebhook, error) {
	return s.SetWebhook(r.Context(), roster.From(r.Context()), r.URL.Query().Get("workspace"),
		amp.Role(r.PathValue("role")), in)
}
