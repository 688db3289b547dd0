package harness

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json" // encodes json.Number, as which policy.DecodeData keeps numbers, with its digits
	"fmt"
	"maps"
	"strings"
	"time"

	"signalbox/internal/facts"
	"signalbox/internal/gate"
	"signalbox/internal/harness/handon"
	"signalbox/internal/policy"
	"signalbox/internal/wire"
)

// retryPending is after how long a client should ask again while a gate is open. The
// next call is held too, so a short pause costs little, and a person's decision arrives
// soon.
const retryPending = 2 * time.Second

// millis is a duration as members of AHP have it: at least 1, because 0 reads as "at
// once" and a client would ask in a loop.
func millis(d time.Duration) *int64 {
	ms := max(1, d.Milliseconds())
	return &ms
}

// failClosed marks an answer that nobody decided (AHP-35).
var failClosed = map[string]any{"fail_closed": true}

// denial denies an event in the words of its type.
func denial(e *Event, reason string) Answer {
	switch e.Type {
	case Idle: // it can only be put off
		// AHP-37: retry_after_ms is for decoders that know the generic decisions only.
		return Answer{Decision: "defer", Reason: reason, RetryAfterMS: millis(time.Minute)}
	case RateLimit:
		return Answer{Decision: "skip", Reason: reason}
	case Confirmation:
		return Answer{Decision: "reject", Reason: reason}
	default:
		return Answer{Decision: "block", Reason: reason}
	}
}

// failureAnswer denies an event about which no decision could be made.
func failureAnswer(e *Event, reason string) Answer {
	a := denial(e, reason)
	a.Metadata = failClosed
	return a
}

// postponement asks a client to ask again later, in the words of the event's type.
// Types without such a word are blocked, with a reason that says so.
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

// permission allows an event in the words of its type.
func permission(e *Event) Answer {
	switch e.Type {
	case Planning:
		var offered struct {
			Strategies []wire.Raw `json:"available_strategies"`
		}
		// A client that offers nothing gets "none", which every client has to know.
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

// modification is the answer when a rule says modify. policy.Parse lets rules modify
// only at points that have such an answer; the error is for a policy that was stored by
// another version.
func (h *Harness) modification(e *Event, changes policy.Changes) (Answer, error) {
	switch e.Type {
	case ContextPerception:
		return Answer{Decision: "refine", ScopeHints: []string{}}, nil
	case Planning: // the payload is for generic decoders
		return Answer{Decision: "modify", ModifiedPayload: e.Payload, ModifiedTask: e.text("task_description")}, nil
	case PreAction, PrePrompt:
		payload, err := h.changed(e.Payload, changes)
		return Answer{Decision: "modify", ModifiedPayload: payload}, err
	default:
		return Answer{}, fmt.Errorf("a rule says modify, which %s does not support", e.Type)
	}
}

// changed applies the changes of a rule to a JSON object, or to an empty one if raw is another value.
// Numbers keep their digits: 1.10 stays 1.10, and an integer beyond 2^53 stays exact.
func (h *Harness) changed(raw wire.Raw, changes policy.Changes) (wire.Raw, error) {
	hide := func(text string) string { clean, _ := h.core.Secrets.Text(text); return clean }
	return patch(raw, func(payload map[string]any) map[string]any { return changes.Apply(payload, hide) })
}

// patch changes a JSON object, or an empty one if raw is another value.
func patch(raw wire.Raw, change func(map[string]any) map[string]any) (wire.Raw, error) {
	var value any
	if err := policy.DecodeData(raw, &value); err != nil {
		return nil, err
	}
	before, _ := value.(map[string]any)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err := enc.Encode(change(before))
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// policyEvent is the view of the event that rules see. Texts that most rules read are
// taken from the payload here; the whole payload is decoded by Fill, only if a rule
// reads it. It must depend on the stored event alone, since replay makes it again.
func (e *Event) policyEvent(trace string) policy.Event {
	return policy.Event{
		Point: e.kind.point, Protocol: Name, Kind: string(e.Type), Depth: e.Depth, Session: e.Session, Trace: trace,
		Tool: e.tool(), CWD: e.text("working_directory", "cwd"), Model: e.text("model_name", "model"),
		Provider: e.text("model_provider"), Run: e.text("run_id"), Tier: e.tier(), Fill: e.fillData,
		Text: e.question(), QueryType: e.query, User: e.User, UserToken: e.UserToken, Workspace: e.Workspace, Claim: e.Claim,
	}
}

// question is the text that the event is about, under whichever name its type has for
// it.
func (e *Event) question() string {
	if e.Type == ContextPerception {
		return (&Event{members: e.inside("context")}).text("query", "current_task")
	}
	return e.text("prompt", "query", "message", "problem_statement", "task_description", "question", "idle_reason",
		"current_usage")
}

// fillData decodes what rules see as data. The event was checked before, so errors
// cannot happen; what is not an object is absent for rules.
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

// maxKey is the longest name of a session, a run or a tool that entries and tables hold
// as it is.
const maxKey = 200 // bytes

// keyOf is the key under which a name of an agent's choice is stored: the name, or its
// hash if it is too long for an index. Everything that stores or looks up a session
// goes through it.
func keyOf(name string) string {
	if len(name) <= maxKey {
		return name
	}
	return "sha256:" + digestOf([]byte(name))
}

// traceOf is the trace of one session: it ties its steps, gates and notifications
// together. It starts with the agent's id, so two agents may use the same session name
// and never meet.
func traceOf(agentID, key string) string { return "session:" + agentID + ":" + key }

// sessionOf is the key of the session in a trace: the inverse of traceOf.
func sessionOf(trace, agentID string) string { return strings.TrimPrefix(trace, traceOf(agentID, "")) }

// subject is the subject of the step's entry: the tool, or the type of an event without
// one.
func (e *Event) subject() string { return keyOf(cmp.Or(e.tool(), string(e.Type))) }

// asStep is the event as far as it tells of a subagent.
func (e *Event) asStep() handon.Step {
	return handon.Step{Acts: e.Type == PreAction, Tool: e.tool(), Arguments: e.arguments, Metadata: e.meta}
}

// tool is the name of the tool. The document has tool_name, A3S Code sends tool.
func (e *Event) tool() string { return e.text("tool_name", "tool") }

// digest is what an approval is bound to (AHP-41): the type, the payload in canonical
// form, so that spaces and the order of members do not matter, and the user. Timestamp,
// other metadata and context are not part of it, since they differ when an agent asks for the
// same again (AHP-42).
func (e *Event) digest() string {
	return digestOf([]byte(e.Type), []byte{0}, wire.Canonical(e.Payload), gate.ForUser(e.Named))
}

// actKey is what an approval is found by (AHP-41): the digest without what a tool only says in words, such
// as the description of a shell command. A model that asks for the same again words it anew. A3S Code adds
// the tools that came before, which differ each time (AHP-56).
func (e *Event) actKey() string {
	arguments, members := maps.Clone(e.arguments), maps.Clone(e.members)
	for _, name := range facts.Prose(e.tool()) {
		delete(arguments, name)
	}
	if e.compat {
		delete(members, "recent_tools")
	}
	if len(arguments) == len(e.arguments) && len(members) == len(e.members) {
		return e.digest()
	}
	if e.arguments != nil {
		members["arguments"], _ = wire.Marshal(arguments) // what was read from JSON can be written
	}
	payload, _ := wire.Marshal(members)
	return digestOf([]byte(e.Type), []byte{0}, wire.Canonical(payload), gate.ForUser(e.Named))
}

// digestOf is the SHA-256 of the parts, in hexadecimal. Callers put a separator between
// parts of variable length.
func digestOf(parts ...[]byte) string {
	sum := sha256.Sum256(bytes.Join(parts, nil))
	return hex.EncodeToString(sum[:])
}
