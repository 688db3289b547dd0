package harness

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"signalbox/internal/harness/external"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// checkEvent makes the checks that do not depend on the policy, in the order of AHP-24:
// depth, then the payload of run_lifecycle, task_list and verification. It finds out whether
// the client is A3S Code, and adapts its payload.
func (h *Harness) checkEvent(ctx context.Context, c *Conn, who roster.Identity, e *Event) *rpcError {
	e.compat = h.isA3S(ctx, c, who.ID, e.members)
	// AHP-25: equal passes.
	if e.Depth > h.Config.MaxDepth {
		return refuse(codeParams, "Invalid event: Protocol error: Event depth %d exceeds configured max depth %d", e.Depth,
			h.Config.MaxDepth)
	}
	if e.kind.contract {
		if err := e.kind.payload(e.Payload); err != nil {
			return refuse(codeParams, "Invalid event: Serialization error: payload %s", err.Error())
		}
	}
	if e.compat && e.kind.typed() {
		e.adapt()
	}
	return nil
}

// decideEvent answers ahp/event as a request: one event that asks for a decision.
func (h *Harness) decideEvent(ctx context.Context, c *Conn, who roster.Identity, m *message) (wire.Raw, *rpcError) {
	e, err := parseEvent(m.params, m.inside)
	if err != nil {
		return nil, refuse(codeParams, "Invalid params: %s", err.Error())
	}
	if err := h.checkEvent(ctx, c, who, e); err != nil {
		return nil, err
	}
	if !e.kind.blocking() {
		return nil, refuse(codeParams, "Fire-and-forget event %s must be sent as a notification", e.Type)
	}
	// AHP-26: -32603, not -32602, as the reference server has it.
	if e.kind.typed() {
		if err := e.kind.payload(e.Payload); err != nil {
			return nil, refuse(codeHandler, "Handler error: Serialization error: payload %s", err.Error())
		}
	}
	if err := h.requireHandshake(ctx, c, who, e.Session); err != nil {
		return nil, err
	}
	answer, failure := h.decide(ctx, c, who, e)
	if failure != nil && h.Config.OnFailure == ErrorOnFailure && !e.compat {
		return nil, refuse(codeHandler, "Handler error: %s", failure.Error())
	}
	return answer, nil
}

// decide evaluates an event within the time that its client waits. It always returns an
// answer that can be sent. If the evaluation fails or takes too long, that is a
// refusal, and the error says why (AHP-35); the caller chooses which of the two goes
// out.
func (h *Harness) decide(ctx context.Context, c *Conn, who roster.Identity, e *Event) (wire.Raw, error) {
	holding, cancel := context.WithTimeout(ctx, h.holdTime())
	defer cancel()
	answer, err := h.evaluateSafely(holding, c, who, e)
	if err != nil {
		h.core.Log.Error("event refused: evaluation failed", "type", string(e.Type), "agent", who.Name, "error",
			err.Error())
		// An answer that may not be on disk is not given, unless it is a refusal that is.
		if _, recorded := errors.AsType[*failure](err); !recorded {
			answer, _ = failureAnswer(e, err.Error()).encode(e, nil) // texts only
		}
	}
	return answer, err
}

// evaluateSafely turns a panic into an error, so that one event cannot take the server
// down and the agent still hears a refusal.
func (h *Harness) evaluateSafely(ctx context.Context, c *Conn, who roster.Identity, e *Event) (answer wire.Raw,
	err error,
) {
	defer func() {
		if p := recover(); p != nil {
			h.core.Log.Error("panic while evaluating an event", "type", string(e.Type), "panic", fmt.Sprint(p), "stack",
				string(debug.Stack()))
			answer, err = nil, fmt.Errorf("internal error")
		}
	}()
	return h.evaluate(ctx, c, who, e)
}

// evaluate asks the policy and records its verdict. The answer is on disk, as a step or
// as a gate, before it is returned (AHP-33). With a *failure the answer is a refusal
// that was recorded; with any other error nothing may have been, and there is no
// answer.
func (h *Harness) evaluate(ctx context.Context, c *Conn, who roster.Identity, e *Event) (wire.Raw, error) {
	key := keyOf(e.Session)
	h.openSession(who, key)
	var answer wire.Raw
	first := h.core.Book.Decide(ctx, who, e.policyEvent(traceOf(who.ID, key)))
	err := rulebook.Settle(first, func(d rulebook.Decision) (err error) {
		answer, err = h.takeDecided(ctx, c, who, e, d)
		return err
	})
	return answer, err
}

// takeDecided records a verdict, and answers with it or with what a person decides. With *rulebook.StaleError nothing was
// written.
func (h *Harness) takeDecided(ctx context.Context, c *Conn, who roster.Identity, e *Event, d rulebook.Decision) (
	wire.Raw, error,
) {
	v := d.Verdict
	if v.Action == policy.Gate {
		// These have no word for "a person will decide", so they are answered at once.
		switch {
		case e.Type == IntentDetection:
			v.Action = policy.Block
		case e.Type == RateLimit, e.asking:
			v.Action = policy.Defer
		default:
			return h.holdStep(ctx, c, who, e, d)
		}
	}
	s := h.stepOf(c, who, e, d)
	answer, byHandler, err := h.answerVerdict(ctx, who, e, v)
	if err != nil {
		return nil, err
	}
	s.Answer, s.Handler = answer, byHandler
	if err := h.recordStep(ctx, who, e, kindOf(v.Action), s, d); err != nil {
		return nil, err
	}
	if v.Failed {
		return answer, &failure{v.Reason}
	}
	return answer, nil
}

// failure is a policy that could not be evaluated. The answer beside it is a refusal,
// and it is recorded like any other decision.
type failure struct{ reason string }

func (f *failure) Error() string { return f.reason }

// answerVerdict translates a verdict into a decision of the event's type. byHandler
// reports that an external handler made it.
func (h *Harness) answerVerdict(ctx context.Context, who roster.Identity, e *Event, v policy.Verdict) (answer wire.Raw,
	byHandler bool, err error,
) {
	if v.Action == policy.Allow && !e.asking && h.Config.Handlers[e.Type] != "" {
		answer, err = external.Ask(ctx, h.calls, h.Config.Handlers[e.Type], string(e.Type), e.Raw)
		if err == nil {
			if err = checkAnswer(e.kind, answer); err != nil {
				err = fmt.Errorf("the handler of %s: %w", e.Type, err)
			}
		}
		if err == nil && e.compat {
			answer = e.forA3S(answer)
		}
		return answer, true, err
	}
	if e.asking {
		answer, err = h.queryReply(ctx, who, e, v)
		return answer, false, err
	}
	var a Answer
	switch v.Action {
	case policy.Allow:
		a, err = h.allowedAnswer(ctx, who, e, v)
	case policy.Modify:
		a, err = h.modification(e, v.Changes)
	case policy.Defer:
		a = postponement(e.Type, v.Reason, v.RetryAfter)
	default:
		a = denial(e, v.Reason)
	}
	if err != nil {
		return nil, false, err
	}
	if v.Failed {
		a.Metadata = failClosed
	}
	// Members that a rule sets belong to an answer that permits. Intent detection may find
	// nothing although the rule allows it, and then the answer is a block without them.
	var set map[string]any
	if (v.Action == policy.Allow || v.Action == policy.Modify) && a.Decision != "block" {
		set = v.Changes.Set
	}
	answer, err = a.encode(e, set)
	return answer, false, err
}
