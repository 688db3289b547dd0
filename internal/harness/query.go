package harness

import (
	"context"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/harness/handon"
	"signalbox/internal/harness/spool"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// answerQuery answers ahp/query.
func (h *Harness) answerQuery(ctx context.Context, c *Conn, who roster.Identity, params wire.Raw) (wire.Raw,
	*rpcError,
) {
	e, err := parseQuery(params)
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	if err := h.requireHandshake(ctx, c, who, e.Session); err != nil {
		return nil, err
	}
	if e.query == spoolQuery {
		return h.takeSpool(ctx, who, e)
	}
	decide := func() (wire.Raw, error) { return h.decide(ctx, c, who, e) }
	if e.query == handon.Query {
		decide = func() (wire.Raw, error) { return h.handOn.Answer(ctx, who, Name, e.Session, e.Named, e.Payload) }
	}
	answer, failure := decide()
	// AHP-36: a query has no decision, so there is no refusal to send in its place.
	if failure != nil {
		return nil, refuse(codeHandler, "Handler error: %s", failure.Error())
	}
	return answer, nil
}

// spoolQuery is the query type by which a client sends what it did while it could not ask. No rule is asked: it
// has happened.
const spoolQuery = "spool"

// takeSpool records a spool.
func (h *Harness) takeSpool(ctx context.Context, who roster.Identity, q *Event) (wire.Raw, *rpcError) {
	taken, err := h.spools.Take(ctx, who, q.Payload, func(raw wire.Raw) (spool.Event, error) {
		e, err := parseEvent(raw, nil)
		if err != nil {
			return spool.Event{}, err
		}
		key := keyOf(e.Session)
		h.openSession(who, key)
		return spool.Event{
			Type: string(e.Type), Tool: e.tool(), Session: key, AgentID: e.AgentID, Tier: e.tier(), Subject: e.subject(),
			Trace: traceOf(who.ID, key), Named: e.Named,
		}, nil
	})
	if err != nil {
		return nil, refuse(codeHandler, "Handler error: %s", fault.From(err).Message)
	}
	result, _ := wire.Marshal(map[string]any{"answer": taken}) // texts and numbers
	return result, nil
}

// knowledgeQueries are the query types that ask for facts. All others ask for
// permission.
var knowledgeQueries = []string{"knowledge", "search", "facts", "memory", "context"}

// queryReply is the result of ahp/query: yes, no or later, or facts if the question is
// for knowledge.
func (h *Harness) queryReply(ctx context.Context, who roster.Identity, e *Event, v policy.Verdict) (wire.Raw, error) {
	out := struct {
		Answer any    `json:"answer"`
		Reason string `json:"reason,omitzero"`
	}{"no", v.Reason}
	switch v.Action {
	case policy.Allow:
		out.Answer, out.Reason = "yes", ""
		if slices.Contains(knowledgeQueries, e.query) {
			facts, err := h.recallFacts(ctx, who, e, e.question(), "", defaultFound)
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
