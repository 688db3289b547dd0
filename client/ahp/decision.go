package ahp

import (
	"bytes"
	"encoding/json" // the client brings a WebSocket and nothing else beside the standard library
	"errors"
	"fmt"
	"strconv"
	"time"

	"signalbox/client/internal/strict"
)

// Decision is what the harness answers to an event. Word is one of the words that the
// event's type has; Raw holds all of it, such as injected facts. A Decision that
// [Refusal] made has no Raw.
type Decision struct {
	Word            string
	Reason          string
	ModifiedPayload json.RawMessage // what to go on with instead, when Word is modify
	RetryAfter      time.Duration   // when Word is defer or retry
	Target          string          // whom it was escalated to
	Metadata        map[string]any
	Raw             json.RawMessage // all of it, nil when nobody decided
}

// Allowed reports whether the agent may go on: with ModifiedPayload, if there is one.
// Every word that is not listed here is a no, also one of a later version of AHP.
func (d Decision) Allowed() bool {
	return d.Word == "allow" || d.Word == "modify" || d.Word == "approve" || d.Word == "refine"
}

// ApprovedBy is the person whose approval the decision is, "" if it is not one of a person but of a rule.
func (d Decision) ApprovedBy() string {
	by, _ := d.Metadata["approved_by"].(string)
	return by
}

// Decode reads the members of the decision into v, such as a struct with
// injected_facts. It fails if nobody decided.
func (d Decision) Decode(v any) error { return json.Unmarshal(d.Raw, v) }

// Refusal is how an event of the type is refused when nobody decided, in the words of
// its type.
func Refusal(t Type, reason string) Decision {
	d := Decision{Word: "block", Reason: reason, Metadata: map[string]any{"fail_closed": true}}
	switch t {
	case Idle:
		d.Word, d.RetryAfter = "defer", time.Minute
	case RateLimit:
		d.Word = "skip"
	case Confirmation:
		d.Word = "reject"
	}
	return d
}

// MarshalJSON writes the decision as it is on the wire.
func (d Decision) MarshalJSON() ([]byte, error) {
	if d.Raw != nil {
		return d.Raw, nil
	}
	out := map[string]any{"decision": d.Word, "reason": d.Reason, "metadata": d.Metadata}
	if d.RetryAfter > 0 {
		out["retry_after_ms"] = d.RetryAfter.Milliseconds()
	}
	return json.Marshal(out)
}

// form is what a decision must have: members by name, with the kind of their value.
// Other members may be there (AHP-7).
type form map[string]byte

// The kinds of values, by the first byte of their JSON where there is one.
const (
	isText   = '"'
	isWhole  = 'u'
	isNumber = '0'
	isObject = '{'
	isList   = '['
	isAny    = '*'
	isNone   = 0
)

var (
	// generic are the words that pre_action and pre_prompt have, and typed those of the
	// other types.
	generic = map[string]form{
		"allow": {}, "block": {"reason": isText}, "modify": {"modified_payload": isAny},
		"defer": {"retry_after_ms": isWhole}, "escalate": {"reason": isText},
	}
	typed = map[Type]map[string]form{
		Idle:            {"allow": {}, "defer": {}},
		IntentDetection: {"allow": {"detected_intent": isText, "confidence": isNumber}, "block": {"reason": isText}},
		ContextPerception: {
			"allow": {"injected_context": isObject}, "block": {"reason": isText},
			"refine": {"scope_hints": isList},
		},
		MemoryRecall: {"allow": {"injected_facts": isList}, "block": {"reason": isText}},
		Planning: {
			"allow": {"selected_strategy": isAny}, "block": {"reason": isText},
			"modify": {"modified_task": isText},
		},
		Reasoning:    {"allow": {}, "block": {"reason": isText}},
		RateLimit:    {"retry": {"retry_after_ms": isWhole}, "queue": {}, "skip": {"reason": isText}},
		Confirmation: {"escalate": {}, "approve": {}, "reject": {"reason": isText}},
	}
	// always are members that have the same kind in every decision.
	always = form{"reason": isText, "retry_after_ms": isWhole, "metadata": isObject, "escalation_target": isText}
)

// decodeDecision reads a decision about an event of the type. Anything that is not
// exactly one is an error, and so a refusal for the caller.
func decodeDecision(t Type, raw json.RawMessage) (Decision, error) {
	members, err := strict.Object(raw)
	if err != nil {
		return Decision{}, fmt.Errorf("the decision: %w", err)
	}
	d := Decision{Raw: raw}
	if err := json.Unmarshal(members["decision"], &d.Word); err != nil {
		return Decision{}, errors.New("the answer has no decision")
	}
	forms := generic
	if typed[t] != nil {
		forms = typed[t]
	}
	needed, known := forms[d.Word]
	if !known {
		return Decision{}, fmt.Errorf("%.40q is not a decision for %s", d.Word, t)
	}
	for name, kind := range needed {
		if got := kindOf(members[name]); got == isNone || kind != isAny && !fits(got, kind, members[name]) {
			return Decision{}, fmt.Errorf("the decision %s has no valid %s", d.Word, name)
		}
	}
	for name, kind := range always {
		if raw := members[name]; raw != nil && !bytes.Equal(raw, []byte("null")) && !fits(kindOf(raw), kind, raw) {
			return Decision{}, fmt.Errorf("the decision %s has no valid %s", d.Word, name)
		}
	}
	d.fill(members)
	return d, nil
}

// fill reads the members that have a field of their own. Their kinds were checked
// before.
func (d *Decision) fill(members map[string]json.RawMessage) {
	_ = json.Unmarshal(members["reason"], &d.Reason)
	_ = json.Unmarshal(members["escalation_target"], &d.Target)
	_ = json.Unmarshal(members["metadata"], &d.Metadata)
	if raw := members["modified_payload"]; raw != nil {
		d.ModifiedPayload = raw
	}
	if ms, err := strconv.ParseUint(string(members["retry_after_ms"]), 10, 64); err == nil {
		const longest = 1 << 40 // milliseconds, decades
		d.RetryAfter = time.Duration(min(ms, longest)) * time.Millisecond
	}
}

// kindOf is the kind of a JSON value, isNone if it is absent.
func kindOf(raw json.RawMessage) byte {
	if len(raw) == 0 {
		return isNone
	}
	switch c := raw[0]; {
	case c == '-' || c >= '0' && c <= '9':
		return isNumber
	default:
		return c
	}
}

// fits reports whether a value has a kind. A whole number has no sign, fraction or
// exponent.
func fits(got, want byte, raw json.RawMessage) bool {
	if want == isWhole {
		_, err := strconv.ParseUint(string(raw), 10, 64)
		return err == nil
	}
	return got == want
}
