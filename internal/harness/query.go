package harness

import (
	"context"
	"slices"

	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// query answers a question.
func (h *Harness) query(ctx context.Context, c *Conn, who roster.Identity, params wire.Raw) (wire.Raw, *rpcError) {
	e, err := parseQuery(params)
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	if err := h.greeted(ctx, c, who, e.Session); err != nil {
		return nil, err
	}
	answer, failure := h.decide(ctx, c, who, e)
	if failure != nil {
		return nil, refuse(codeHandler, "Handler error: %s", failure.Error())
	}
	return answer, nil
}

// parseQuery reads a question as an event.
func parseQuery(raw wire.Raw) (*Event, error) {
	if raw.Kind() != '{' {
		return nil, misfitf("params should be an object, and is %s", shown(raw))
	}
	got, err := wire.Members(raw)
	if err != nil {
		return nil, err
	}
	if err := fits(got, queryParams); err != nil {
		return nil, err
	}
	e := &Event{Type: Query, kind: kinds[Query], Payload: got["payload"], Raw: raw, asking: true}
	e.query, _ = wire.Text(got["query_type"])
	e.Session, _ = wire.Text(got["session_id"])
	e.AgentID, _ = wire.Text(got["agent_id"])
	if e.Payload.Kind() == '{' {
		e.members, err = wire.Members(e.Payload)
	}
	return e, err
}

// knowing are the query types that ask for knowledge.
var knowing = []string{"knowledge", "search", "facts", "memory", "context"}

// reply is the answer to a query.
func (h *Harness) reply(ctx context.Context, who roster.Identity, e *Event, v policy.Verdict) (wire.Raw, error) {
	out := struct {
		Answer any    `json:"answer"`
		Reason string `json:"reason,omitzero"`
	}{"no", v.Reason}
	switch v.Action {
	case policy.Allow:
		out.Answer, out.Reason = "yes", ""
		if slices.Contains(knowing, e.query) {
			facts, err := h.recall(ctx, who, e, e.question(), "", perceived)
			if err != nil {
				return nil, err
			}
			out.Answer = facts
		}
	case policy.Defer:
		out.Answer = "later"
	default:
	}
	return wire.Marshal(out)
}
