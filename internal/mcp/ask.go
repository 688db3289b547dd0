package mcp

import (
	"cmp"
	"context"
	"crypto/rand"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/signal"
	"signalbox/internal/wire"
)

// askTools are for every agent, whatever its role.
func (s *server) askTools() []tool {
	decision := object{
		"status":  oneOf("what the person has decided", "pending", "approved", "rejected"),
		"message": text("the decision in words, with the person's note"),
	}
	return []tool{
		{
			name: "ask_operator",
			about: "Ask a person a question, and wait for the answer. Put it so that yes (approved) or no (rejected), with a " +
				"note, answers it. If the status is still pending call it again with the gate_id that it gave you; a call with a " +
				"question asks once more.",
			waits: true, output: decision,
			fields: object{
				"question":     word(4000, "what the person should decide, and what you will do after a yes"),
				"background":   word(4000, "what the person needs to know to decide"),
				"task_id":      word(32, "the task that it is about, such as T-2026-044"),
				"gate_id":      text("the gate_id of a question that is still pending, instead of a question"),
				"wait_seconds": waitField,
			},
			do: s.askOperator,
		},
		{
			name: "request_approval",
			about: "Ask a person to approve an action before you take it, and wait up to 55 seconds. If it is still pending, " +
				"call it again with the same run_id and request_id.",
			waits: true, output: decision,
			fields: object{
				"run_id":     word(128, "what you are working on, in a name of your own"),
				"request_id": word(128, "this request among those of the run: another action is another request_id"),
				"summary":    word(4000, "what you have done so far"), "proposed_action": word(4000, "what you want to do"),
				"wait_seconds": waitField,
			},
			required: []string{"run_id", "request_id", "summary", "proposed_action"},
			do: func(ctx context.Context, args object) (outcome, error) {
				wait, err := waitOf(args, longestWait, longestWait)
				if err != nil {
					return outcome{}, err
				}
				delete(args, "wait_seconds") // which is no part of the signal
				return s.ask(ctx, args, wait)
			},
		},
	}
}

// askOperator asks a new question each time, or waits on for the answer to one.
func (s *server) askOperator(ctx context.Context, args object) (outcome, error) {
	wait, err := waitOf(args, longestWait, longestWait)
	if err != nil {
		return outcome{}, err
	}
	given, err := textsOf(args, "question", "background", "task_id", "gate_id")
	if err != nil {
		return outcome{}, err
	}
	question, gateID := given[0], given[3]
	if (question == "") == (gateID == "") {
		return outcome{}, fault.New(fault.InvalidPayload,
			"Give either a question, to ask it, or the gate_id of one that is pending, to wait for its answer.",
		).About("question")
	}
	if gateID != "" {
		return answer(s.Signals.Await(ctx, s.who, gateID, wait))
	}
	return s.ask(ctx, object{
		"run_id": cmp.Or(given[2], "ask_operator"), "request_id": rand.Text(), "summary": cmp.Or(given[1], question),
		"proposed_action": question,
	}, wait)
}

// ask asks a person, and waits for them. It is a gate_request signal; run_id and request_id
// identify it, so calling again with the same ones waits on and asks nobody twice.
func (s *server) ask(ctx context.Context, args object, wait time.Duration) (outcome, error) {
	// A model cannot ask in another agent's name.
	args["amp_version"], args["type"], args["agent_id"] = "2.0", string(signal.GateRequest), s.who.Name
	text, err := wire.EncodeData(args)
	if err != nil {
		return outcome{}, err
	}
	// A request that was decided before is answered at once.
	got, err := s.Signals.Receive(ctx, s.who, signal.GateRequest, text)
	if err != nil || got.Status != gate.Pending {
		return answer(got.Answer, err)
	}
	// Still pending after that is an answer, too: the model calls again.
	return answer(s.Signals.Await(ctx, s.who, *got.GateID, wait))
}
