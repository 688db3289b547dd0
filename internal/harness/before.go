package harness

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/wire"
)

const (
	// maxBefore and maxBeforeBytes are how many steps before a gate are shown, and how much is read
	// to find them.
	maxBefore      = 10
	maxBeforeBytes = 1 << 20
	// promptWithin is how many entries of a session are searched for its last prompt. The agent waits
	// meanwhile, and a session may have no prompt at all.
	promptWithin = 5000
)

// said is what a hook says of a step beside its payload. It differs when the same is asked again, so no
// approval depends on it (AHP-42).
type said struct {
	Branch string `json:"branch"`
	Run    string `json:"run"`
}

// metadata is what the event says of itself, as far as we look at it.
func (e *Event) metadata() (s said) {
	if len(e.meta) > 0 {
		_ = wire.UnmarshalPart(e.meta, &s) // it is the agent's own; of another form it says nothing
	}
	return s
}

// tier is who waits for the answer to the event. Depth and run are what the agent's hooks say of it.
func (e *Event) tier() policy.Tier {
	run := e.text("run_id")
	if run == "" && bytes.Contains(e.meta, []byte(`"run"`)) { // few have it, and decoding takes time
		run = e.metadata().Run
	}
	switch {
	case e.Depth > 0 || e.Claim.Subagent != "":
		return policy.Subagent
	case run != "":
		return policy.Background
	}
	return policy.Interactive
}

// contextOf is what led to a gate: the last prompt of the session, the branch that the agent works on,
// and the steps before this one with what became of them.
func (h *Harness) contextOf(ctx context.Context, s *heldStep) ([]gate.Fact, error) {
	trace := traceOf(s.who.ID, s.session)
	all := []gate.Fact{{Name: "branch", Value: s.metadata().Branch}}
	if s.Type != PrePrompt {
		prompt, err := h.lastPrompt(ctx, trace)
		if err != nil {
			return nil, err
		}
		all = append([]gate.Fact{{Name: "last prompt", Value: prompt}}, all...)
	}
	var steps []string
	_, _, err := h.core.Ledger.WalkBack(ctx, ledger.Query{Trace: trace, Kinds: stepKinds, Limit: maxBefore}, maxBeforeBytes,
		func(e *ledger.Entry) error {
			if step := stepEvent(e); step != nil {
				seen := step.policyEvent(trace)
				seen.Read()
				line := titleOf(step.Type, &seen)
				if seen.Tool == "" {
					line = string(step.Type) + ": " + line
				}
				steps = append(steps, strings.TrimPrefix(e.Kind, "step.")+": "+gate.Title(line))
			}
			return nil
		})
	slices.Reverse(steps)
	return append(all, gate.Fact{Name: "steps before", Value: strings.Join(steps, "\n")}), err
}

// lastPrompt is the newest prompt among the last entries of a session, "" if there is none.
func (h *Harness) lastPrompt(ctx context.Context, trace string) (string, error) {
	var seq int64
	err := h.core.DB.QueryRow(ctx, "SELECT coalesce(max(seq), 0) FROM (SELECT e.seq, e.subject FROM "+ledger.EntryTable+
		" WHERE e.trace <> '' AND e.trace = $1 ORDER BY e.seq DESC LIMIT $2) recent WHERE subject = $3",
		[]any{trace, promptWithin, string(PrePrompt)}, &seq)
	if err != nil || seq == 0 {
		return "", err
	}
	entry, err := h.core.Ledger.Entry(ctx, seq)
	if err != nil {
		return "", err
	}
	if step := stepEvent(&entry); step != nil && step.Type == PrePrompt {
		return step.question(), nil
	}
	return "", nil // it was erased, or is a tool of that name
}

// stepEvent is the event of a step, nil if it was erased or is a query.
func stepEvent(entry *ledger.Entry) *Event {
	moments, err := momentsOf(entry)
	if err != nil || moments[0].Event == nil {
		return nil
	}
	e, err := parseEvent(moments[0].Event, nil)
	if err != nil {
		return nil
	}
	return e
}

// titleOf is an event in a line: the tool with its command, or what is asked. e has been read.
func titleOf(t Type, e *policy.Event) string {
	if e.Command != "" {
		return e.Tool + ": " + e.Command
	}
	return cmp.Or(e.Tool, e.Text, string(t))
}
