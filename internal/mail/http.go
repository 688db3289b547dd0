package mail

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/failure"
	"signalbox/internal/mail/query"
	"signalbox/internal/mail/sent"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The limits of the protocol, for one agent. limits.per_agent replaces them.
const (
	messagesPerMinute = 60
	messagesPerHour   = 500
	// PendingPerMinute is how often an agent may poll. A long poll counts once.
	PendingPerMinute = 30
)

// maxIDs is how many messages one call may acknowledge.
const maxIDs = 1000

// Routes are the calls of the protocol, each under the one path that CanonicalPath makes of all
// its spellings, and the calls of operators. The protocol's own are lenient: they ignore unknown
// query parameters (MSG-5) and answer errors in the protocol's form.
func (m *Mail) Routes() []wire.Route {
	routes := []wire.Route{
		// The key of a socket is in its first frame.
		{Method: "GET", Path: "/v1/ws", Summary: "A WebSocket: the first frame is auth", Status: 101, Handle: m.getSocket, Proof: []string{wire.Demanded}},
		// The protocol's view of gates and of risk, for operators.
		{
			Method: "GET", Path: "/v1/quarantine", Summary: "List messages that are held for a person", Auth: wire.Viewer,
			Query:  append([]wire.Param{{Name: "status", Meaning: "pending, approved, rejected or all"}}, wire.PageParams...),
			Answer: QuarantineList{}, Handle: wire.List(m.getQuarantine),
		},
		{
			Method: "GET", Path: "/v1/quarantine/{id}", Summary: "Show a held message, with its text", Auth: wire.Viewer,
			Answer: Quarantined{}, Handle: wire.Answer(http.StatusOK, m.getQuarantined),
		},
		{
			Method: "POST", Path: "/v1/quarantine/{id}/approve", Summary: "Deliver a held message", Auth: wire.Operator,
			Answer: QuarantineAnswer{}, Handle: m.postQuarantined(true),
		},
		{
			Method: "POST", Path: "/v1/quarantine/{id}/reject", Summary: "Reject a held message", Auth: wire.Operator,
			Answer: QuarantineAnswer{}, Handle: m.postQuarantined(false),
		},
		{
			Method: "GET", Path: "/v1/agents/{id}/{what}", Summary: "The risk of an agent in the last day; what is risk",
			Auth: wire.Viewer, Answer: RiskReport{}, Handle: wire.Answer(http.StatusOK, m.getRisk),
		},
	}
	routes = slices.Concat(m.discovery.Routes(), routes, m.agentRoutes(), m.Directory.Routes(), m.Attachments.Routes(), m.meshRoutes())
	for i := range routes {
		routes[i].Fail, routes[i].Lenient = failure.Fail, true
	}
	// The same, with an error form of its own.
	routes = append(routes, wire.Route{
		Method: "POST", Path: "/v1/federation/deliver",
		Summary: "A message from another provider, which has signed the call", Request: amp.MessageDocument{},
		Answer: Accepted{}, Also: http.StatusAccepted, Handle: m.postFederation, Fail: failure.FailPeer, Lenient: true, Proof: []string{wire.Demanded},
	})
	// The operators' API, strict and with its own errors.
	return slices.Concat(routes, m.Links.Routes(), []wire.Route{
		{
			Method: "GET", Path: "/ops/messages", Summary: "List messages, newest first", Auth: wire.Viewer,
			Query: append([]wire.Param{
				{Name: "agent", Meaning: "only messages that this agent sent or received: its name, id or address"},
				{Name: "thread", Meaning: "only messages of this thread"},
				{Name: "status", Meaning: "only messages with this status"},
				{Name: "search", Meaning: "only messages with all of these words"},
				{Name: "workspace", Meaning: "only messages from or for this workspace"},
			}, wire.PageParams...), Answer: MessagePage{}, Handle: wire.List(m.getMessages),
		},
		{
			Method: "GET", Path: "/ops/messages/{id}", Summary: "Show a message and its history", Auth: wire.Viewer,
			Answer: Detail{}, Handle: wire.Answer(http.StatusOK, m.getMessage),
		},
	})
}

// agentRoutes are the calls that agents make with their keys. MSG-57, MSG-58: several spellings of a poll
// and of an acknowledgement, each of which is the only one of some client.
func (m *Mail) agentRoutes() []wire.Route {
	wait := []wire.Param{
		{Name: "limit", Meaning: "at most this many, 1 to 1000; 100 when absent", Number: true},
		{Name: "after", Meaning: "the value of next_cursor from the call before"},
		{Name: "wait", Meaning: "how many seconds to wait for a message, at most 30"},
	}
	ack := wire.Answer(http.StatusOK, m.deletePending)
	routes := []wire.Route{
		{Method: "DELETE", Path: "/v1/messages/pending/{id}", Summary: "Acknowledge a message", Handle: ack},
		{
			Method: "DELETE", Path: "/v1/messages/pending", Summary: "Acknowledge a message",
			Query: []wire.Param{{Name: "id", Meaning: "the message"}}, Handle: ack,
		},
		{Method: "POST", Path: "/v1/inbox/{id}/ack", Summary: "Acknowledge a message", Handle: ack},
		{
			Method: "POST", Path: "/v1/messages/pending/ack", Summary: "Acknowledge messages: {\"ids\": […]}",
			Request: amp.AckDocument{}, Handle: roster.AnswerBody(http.StatusOK, amp.MaxBody, m.AckAll),
		},
		{
			Method: "POST", Path: "/v1/messages/pending", Summary: "The same as /v1/messages/pending/ack",
			Request: amp.AckDocument{}, Handle: roster.AnswerBody(http.StatusOK, amp.MaxBody, m.AckAll),
		},
		{
			Method: "GET", Path: "/v1/messages/pending/count", Summary: "How many messages wait", Answer: Count{},
			Handle: roster.Answer(m.Count),
		},
		{
			Method: "POST", Path: "/v1/messages/{id}/read", Summary: "Send a read receipt",
			Handle: roster.AnswerAbout("id", m.postRead),
		},
		{
			Method: "GET", Path: "/v1/messages/{id}", Summary: "What became of a message that the agent sent", Answer: Answer{},
			Handle: roster.AnswerAbout("id", m.Sent),
		},
	}
	for i := range routes {
		routes[i].Rate = amp.RequestsPerMinute
	}
	for _, path := range []string{"/v1/messages/pending", "/v1/messages", "/v1/inbox"} {
		routes = append(routes, wire.Route{
			Method: "GET", Path: path,
			Summary: "The agent's queue, oldest first; reading removes nothing", Rate: PendingPerMinute,
			Query: wait, Answer: amp.PageDocument{}, Handle: m.getPending,
		})
	}
	// No Rate here: messages have a limit of their own, which Send counts.
	routes = append(routes, wire.Route{
		Method: "POST", Path: "/v1/route",
		Summary: "Send a message; 202 while a person decides", Request: amp.RouteDocument{}, Answer: Answer{},
		Also: http.StatusAccepted, Handle: m.postRoute,
	})
	for i := range routes {
		routes[i].Auth = wire.Agent
	}
	return routes
}

// takeMessage counts a message against the two limits of its sender. The allowance that it
// returns is that of the limit that is closer to its end.
func (m *Mail) takeMessage(who roster.Identity) (roster.Allowance, error) {
	left, err := m.core.Roster.Take(who, "messages", messagesPerMinute)
	if err != nil {
		return left, err
	}
	hour, err := m.core.Roster.TakeHourly(who, "messages", messagesPerHour)
	if err != nil || hour.Limit > 0 && hour.Remaining < left.Remaining {
		return hour, err
	}
	return left, nil
}

// Send is Route for an agent that calls by itself: it counts against the agent's limits. The
// allowance is valid beside an error too.
func (m *Mail) Send(ctx context.Context, who roster.Identity, body []byte) (Answer, roster.Allowance, error) {
	left, err := m.takeMessage(who)
	if err != nil {
		return Answer{}, left, err
	}
	if err := wire.Fits(body, amp.MaxBody); err != nil {
		return Answer{}, left, err
	}
	answer, err := m.Route(ctx, who, body)
	return answer, left, err
}

// postRoute answers POST /v1/route.
func (m *Mail) postRoute(w http.ResponseWriter, r *http.Request) error {
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	answer, left, err := m.Send(r.Context(), roster.From(r.Context()), body)
	left.SetHeaders(w.Header())
	if err != nil {
		return err
	}
	return wire.Reply(w, answeredWith(answer), answer)
}

// getPending answers the three spellings of a poll. The body is written as it is: a second
// encoding would change payloads.
func (m *Mail) getPending(w http.ResponseWriter, r *http.Request) error {
	limit, after, wait, err := query.ReadPoll(r)
	if err != nil {
		return err
	}
	page, err := m.Poll(r.Context(), roster.From(r.Context()), after, limit, wait)
	if err != nil {
		return err
	}
	for i := range page.Messages {
		p := &page.Messages[i]
		attachment.Speak(r.RequestURI, m.Domains, &p.Message, p.Security.Attachments, p.ours)
	}
	body, err := page.JSON()
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(body, '\n'))
	return nil
}

// deletePending acknowledges the message that the path or the query names (MSG-58).
func (m *Mail) deletePending(r *http.Request) (AckedOne, error) {
	return m.AckOne(r.Context(), roster.From(r.Context()), cmp.Or(r.PathValue("id"), r.URL.Query().Get("id")))
}

// readIDs reads the list of ids of a call that acknowledges several messages.
func readIDs(body []byte) ([]string, error) {
	f, err := amp.ReadFields(body)
	if err != nil {
		return nil, err
	}
	ids := f.Texts("ids", maxIDs, 128)
	if len(ids) == 0 {
		f.Missing("ids", "a list of message ids, such as [\"msg_1706648400_abc123\"]")
	}
	return ids, f.Err
}

// AckAll acknowledges the messages that a body lists, and reports how many were still queued.
func (m *Mail) AckAll(ctx context.Context, who roster.Identity, body []byte) (map[string]int, error) {
	ids, err := readIDs(body)
	if err != nil {
		return nil, err
	}
	acked, err := m.Ack(ctx, who, ByRelay, ids...)
	return map[string]int{"acknowledged": acked.Now}, err
}

// Sent is what became of a message that an agent has sent (MSG-114).
func (m *Mail) Sent(ctx context.Context, who roster.Identity, id string) (Answer, error) {
	if err := m.active(ctx, who); err != nil {
		return Answer{}, err
	}
	return sent.Of(ctx, &m.core, who.ID, id)
}

// postRead answers a read receipt in the member that the document names; AI Maestro has another.
func (m *Mail) postRead(ctx context.Context, who roster.Identity, id string) (map[string]any, error) {
	at, told, err := m.Read(ctx, who, id)
	return map[string]any{"read_receipt_sent": told, "read_at": amp.Stamp(at)}, err
}

// getRisk serves every path below an agent: the mux refuses /v1/agents/{id}/risk beside
// /v1/agents/resolve/{address}, since both match /v1/agents/resolve/risk.
func (m *Mail) getRisk(r *http.Request) (RiskReport, error) {
	if r.PathValue("what") != "risk" {
		return RiskReport{}, fault.New(fault.NotFound,
			"Unknown path. Below an agent there are /risk, /suspend and /unsuspend.")
	}
	return m.Risk(r.Context(), r.PathValue("id"))
}
