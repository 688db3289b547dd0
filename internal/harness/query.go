package harness

import (
	"context"
	"slices"

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
	answer, failure := h.decide(ctx, c, who, e)
	// AHP-36: a query has no decision, so there is no refusal to send in its place.
	if failure != nil {
		return nil, refuse(codeHandler, "Handler error: %s", failure.Error())
	}
	return answer, nil
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
