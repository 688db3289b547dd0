package harness

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json" // encodes json.Number, as which policy.DecodeData keeps numbers, with its digits
	"fmt"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/wire"
)

// retryPending is after how long a client should ask again while a gate waits. The next call is
// held too, so there is no hurry.
const retryPending = 2 * time.Second

func millis(d time.Duration) *int64 {
	ms := max(1, d.Milliseconds())
	return &ms
}

// failClosed marks an answer that nobody decided.
var failClosed = map[string]any{"fail_closed": true}

// refusal is a no in the words of the event's type.
func refusal(e *Event, reason string) Answer {
	switch {
	case e.Type == Idle: // it can only be put off; members beside the reason are for generic decoders
		return Answer{Decision: "defer", Reason: reason, RetryAfterMS: millis(time.Minute)}
	case e.Type == RateLimit:
		return Answer{Decision: "skip", Reason: reason}
	case e.Type == Confirmation && e.compat:
		// A3S Code cannot decode a reject, and goes on if it cannot decode the answer.
		return Answer{Decision: "escalate", Reason: reason}
	case e.Type == Confirmation:
		return Answer{Decision: "reject", Reason: reason}
	}
	return Answer{Decision: "block", Reason: reason}
}

// failureAnswer is the refusal when no decision could be made: nothing is allowed by accident.
func failureAnswer(e *Event, reason string) Answer {
	a := refusal(e, reason)
	a.Metadata = failClosed
	return a
}

// postponement asks a client to ask again later, in the words of the event's type.
func postponement(t Type, reason string, after time.Duration) Answer {
	switch t {
	case RateLimit:
		return Answer{Decision: "queue"}
	case Confirmation: // the reason is for generic decoders
		return Answer{Decision: "escalate", Reason: reason}
	case PreAction, PrePrompt, Handshake, Query, Idle:
		return Answer{Decision: "defer", Reason: reason, RetryAfterMS: millis(after)}
	default:
		return Answer{Decision: "block", Reason: reason}
	}
}

// permission is a plain yes in the words of the event's type.
func permission(e *Event) Answer {
	switch e.Type {
	case Planning:
		var offered struct {
			Strategies []wire.Raw `json:"available_strategies"`
		}
		a := Answer{Decision: "allow", SelectedStrategy: wire.Raw(`"none"`)}
		if wire.UnmarshalPart(e.Payload, &offered) == nil && len(offered.Strategies) > 0 {
			a.SelectedStrategy = offered.Strategies[0]
		}
		return a
	case RateLimit:
		var limit struct {
			After int64 `json:"retry_after_ms"`
		}
		_ = wire.UnmarshalPart(e.Payload, &limit) // a number that is too large counts as 0
		return Answer{Decision: "retry", RetryAfterMS: &limit.After}
	case Confirmation:
		return Answer{Decision: "approve"}
	default:
		return Answer{Decision: "allow"}
	}
}

// modification is the answer of a rule that says modify.
func modification(e *Event, set map[string]any) (Answer, error) {
	switch e.Type {
	case ContextPerception:
		return Answer{Decision: "refine", ScopeHints: []string{}}, nil
	case Planning: // the payload is for generic decoders
		return Answer{Decision: "modify", ModifiedPayload: e.Payload, ModifiedTask: e.text("task_description")}, nil
	case PreAction, PrePrompt:
		payload, err := patch(e.Payload, set)
		return Answer{Decision: "modify", ModifiedPayload: payload}, err
	default:
		return Answer{}, fmt.Errorf("a rule says modify, which %s cannot be", e.Type)
	}
}

// patch merges set into a JSON object, or makes one of what is not. Numbers keep their digits.
func patch(raw wire.Raw, set map[string]any) (wire.Raw, error) {
	var value any
	if err := policy.DecodeData(raw, &value); err != nil {
		return nil, err
	}
	before, _ := value.(map[string]any)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(policy.Merge(before, set))
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// policyEvent is what rules see of an event.
func (e *Event) policyEvent(trace string) policy.Event {
	argument := func(names ...string) string { return (&Event{members: e.arguments}).text(names...) }
	out := policy.Event{
		Point: e.kind.point, Protocol: Name, Kind: string(e.Type), Depth: e.Depth, Session: e.Session, Trace: trace,
		Tool: e.tool(), Command: argument("command"), Path: argument("file_path", "path"), URL: argument("url"),
		CWD: e.text("working_directory", "cwd"), Model: e.text("model_name", "model"), Provider: e.text("model_provider"),
		Run:  e.text("run_id"),
		Text: e.question(), QueryType: e.query, Fill: e.fillData,
	}
	if out.URL != "" {
		if u, err := url.Parse(out.URL); err == nil {
			out.Host = u.Hostname()
		}
	}
	return out
}

// question is the text that an event is about.
func (e *Event) question() string {
	if e.Type == ContextPerception {
		return (&Event{members: e.inside("context")}).text("query", "current_task")
	}
	return e.text("prompt", "query", "message", "problem_statement", "task_description", "question", "idle_reason",
		"current_usage")
}

// fillData decodes what rules see as data. It was checked before, so it can be decoded.
func (e *Event) fillData(p *policy.Event) {
	var whole struct {
		Payload  any            `json:"payload"`
		Metadata map[string]any `json:"metadata"`
	}
	_ = policy.DecodeData(e.Raw, &whole)
	_ = policy.DecodeData(e.Payload, &whole.Payload) // as compat has made it
	p.Payload, _ = whole.Payload.(map[string]any)
	p.Arguments, _ = p.Payload["arguments"].(map[string]any)
	p.Metadata = whole.Metadata
}

// maxKey is the longest name that is used as it is in entries and tables.
const maxKey = 200 // bytes

// keyOf is the name under which a session is stored: its own, or its hash if that is too long.
func keyOf(name string) string {
	if len(name) <= maxKey {
		return name
	}
	return "sha256:" + digestOf([]byte(name))
}

// traceOf ties together everything of one session of an agent.
func traceOf(agentID, key string) string { return "session:" + agentID + ":" + key }

// sessionOf is the session in a trace.
func sessionOf(trace, agentID string) string { return strings.TrimPrefix(trace, traceOf(agentID, "")) }

// subject is what a step is about, as its entry says: the tool, or the type of what has none.
func (e *Event) subject() string { return keyOf(cmp.Or(e.tool(), string(e.Type))) }

func (e *Event) tool() string { return e.text("tool_name", "tool") }

// digest is what an approval is good for: this type of event with this payload, however it is
// written.
func (e *Event) digest() string {
	return digestOf([]byte(e.Type), []byte{0}, wire.Canonical(e.Payload))
}

func digestOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil))
}
