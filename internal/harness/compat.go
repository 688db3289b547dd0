package harness

import (
	"bytes"
	"context"
	"encoding/json" // reads the beginning of a text that is no JSON as a whole
	"fmt"
	"strings"
	"time"
	"unicode"

	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// CompatA3S names the dialect of A3S Code, the only one that is understood.
const CompatA3S = "a3s-code"

// FrameworkA3S is what the reference client calls itself in handshakes.
const FrameworkA3S = "a3s-ahp"

// isA3S reports whether a client is A3S Code, by the setting, its handshake or what it sends (AHP-53). A
// client that fails open must not be taken for another one, so any of them is enough. payload are the
// members of the event's payload, nil if they are not known.
func (h *Harness) isA3S(ctx context.Context, c *Conn, agent string, payload map[string]wire.Raw) bool {
	// Only A3S Code sends the tools before this one, and no tool_name. That holds also for a client whose
	// handshake was lost with the server before.
	shaped := payload["recent_tools"] != nil && payload["tool"] != nil && payload["tool_name"] == nil
	if shaped || c.compat || c.a3s.Load() {
		return true
	}
	return !c.stream && agent != "" && h.lastFramework(ctx, agent) == FrameworkA3S
}

// lastFramework is what the agent called itself in its last handshake, for POSTs, which have no connection
// to remember it. After a restart the entry of the handshake is read once.
func (h *Harness) lastFramework(ctx context.Context, agent string) string {
	h.handshakes.mu.Lock()
	name, known := h.handshakes.framework[agent]
	h.handshakes.mu.Unlock()
	if known {
		return name
	}
	var seq int64
	var entry ledger.Entry
	err := h.core.DB.QueryRow(ctx, "SELECT opened_seq FROM harness_session WHERE agent = $1 AND greeted = $2 "+
		"ORDER BY opened_seq DESC LIMIT 1", []any{agent, true}, &seq)
	if err == nil {
		entry, err = h.core.Ledger.Entry(ctx, seq)
	}
	var b opened
	if err == nil {
		_ = entry.Decode(&b) // one that was erased names nobody
	}
	name = FrameworkOf(b.Info)
	if ctx.Err() == nil {
		h.handshakes.setFramework(agent, name)
	}
	return name
}

// FrameworkOf is the framework in the agent_info of a handshake.
func FrameworkOf(info wire.Raw) string {
	var said struct {
		Framework string `json:"framework"`
	}
	_ = wire.UnmarshalPart(info, &said) // one that says nothing has none
	return said.Framework
}

// refuseRequest answers a request with an error.
func (h *Harness) refuseRequest(ctx context.Context, c *Conn, agent string, m *message, problem *rpcError) Outcome {
	if blocked := h.blockInstead(ctx, c, agent, m, problem); blocked != nil {
		return Outcome{JSON: blocked}
	}
	return Outcome{JSON: errorReply(m.id, problem)}
}

// refuseText answers a text that could not be read, of which m is what could.
func (h *Harness) refuseText(ctx context.Context, c *Conn, agent string, m *message, text []byte,
	problem *rpcError,
) Outcome {
	head := *m
	head.id, head.method = Head(text)
	if blocked := h.blockInstead(ctx, c, agent, &head, problem); blocked != nil {
		return Outcome{JSON: blocked}
	}
	return Outcome{JSON: errorReply(m.id, problem), Broken: problem.code == codeParse}
}

// blockInstead is the reply in place of an error to an event of A3S Code, which goes on after an error
// (AHP-54). It is nil for every other message.
func (h *Harness) blockInstead(ctx context.Context, c *Conn, agent string, m *message, problem *rpcError) []byte {
	var payload map[string]wire.Raw
	if len(m.inside) > 1 {
		payload = m.inside[1]
	}
	if m.id == nil || m.method != methodEvent || !h.isA3S(ctx, c, agent, payload) {
		return nil
	}
	answer, _ := wire.Marshal(Answer{Decision: "block", Reason: problem.message, Metadata: failClosed}) // texts only
	return resultReply(m.id, answer)
}

// Head reads the id and the method at the beginning of a text that may be no JSON as a whole. Clients write
// both before params. An id that is no text is left out.
func Head(text []byte) (id wire.Raw, method string) {
	head := json.NewDecoder(bytes.NewReader(text[:min(len(text), maxHead)]))
	_, err := head.Token()
	for err == nil {
		var name json.Token
		var value json.RawMessage
		if name, err = head.Token(); err != nil || name == "params" || head.Decode(&value) != nil {
			break
		}
		switch raw := wire.Raw(value); {
		case name == "id" && raw.Kind() == '"':
			id = raw
		case name == "method":
			method, _ = wire.Text(raw)
		}
	}
	return id, method
}

// maxHead is how much of a text that cannot be read is looked at, in bytes.
const maxHead = 4 << 10

// forA3S is an answer in the two words on which A3S Code acts (AHP-54): it goes on after any other, and
// after one that it cannot decode. What it cannot do is refused with what is wanted and how to ask again.
// Idle it only puts off, and a changed prompt it takes.
func (e *Event) forA3S(answer wire.Raw) wire.Raw {
	var a Answer
	if err := wire.UnmarshalPart(answer, &a); err != nil {
		return answer // it was made here, or checked
	}
	changes := len(a.ModifiedPayload) > 0 && string(a.ModifiedPayload) != "null" &&
		!wire.Same(a.ModifiedPayload, e.Payload)
	switch {
	case e.Type == Idle, a.Decision == "block", e.Type == PrePrompt && a.Decision == "modify",
		a.Decision == "allow" && (!changes || e.Type == PrePrompt):
		return answer
	case a.Decision == "approve", a.Decision == "retry", a.Decision == "modify" && !changes && e.Type == PreAction:
		a = Answer{Decision: "allow", Metadata: a.Metadata}
	default:
		a = Answer{Decision: "block", Reason: strings.Join(strings.Fields(a.askAgain()), " "), Metadata: a.Metadata}
	}
	plain, err := wire.Marshal(a)
	if err != nil {
		return wire.Raw(`{"decision":"block","reason":"The answer could not be written."}`)
	}
	return plain
}

// askAgain is what a model is told in place of an answer that its client does not act on.
func (a *Answer) askAgain() string {
	switch a.Decision {
	case "defer":
		after := time.Second
		if a.RetryAfterMS != nil {
			after = max(after, time.Duration(*a.RetryAfterMS)*time.Millisecond)
		}
		return fmt.Sprintf("Not decided yet. %s Make the same call again in %d s.", a.Reason, int(after.Seconds()+0.999))
	case "escalate":
		return a.Reason + " A person decides. Make the same call again later."
	case "queue":
		return "Not now: make the same call again later."
	case "allow", "modify":
		instead := string(a.ModifiedPayload)
		if a.ModifiedTask != "" {
			instead = a.ModifiedTask
		}
		return a.Reason + " Not as it is. The policy wants this instead, so ask for exactly that: " + instead
	case "refine":
		return "The policy wants this narrowed first: " + strings.Join(a.ScopeHints, ", ")
	}
	if a.Reason == "" {
		return "The policy does not allow this."
	}
	return a.Reason
}

// adapt rewrites a typed payload as A3S Code sends it into the form that AHP fixes
// (AHP-53): the session comes from the envelope, enum values from Rust's debug form,
// and the flat form of a context becomes the nested one. What is right already stays.
// The stored event is not changed; replay adapts it again.
func (e *Event) adapt() {
	if e.members == nil {
		return
	}
	out := map[string]any{}
	for name, value := range e.members {
		out[name] = value
	}
	if e.members["session_id"].Kind() != '"' && e.Type != Idle {
		out["session_id"] = e.Session
	}
	for _, name := range []string{
		"intent", "domain", "urgency", "freshness", "preferred_modality", "reasoning_type", "limit_type",
		"confirmation_type",
	} {
		if value, ok := wire.Text(e.members[name]); ok {
			out[name] = snake(value)
		}
	}
	if e.Type == Planning {
		var offered []wire.Raw
		if wire.UnmarshalPart(e.members["available_strategies"], &offered) == nil {
			names := make([]any, len(offered))
			for i, raw := range offered {
				names[i] = raw
				if value, ok := wire.Text(raw); ok {
					names[i] = snake(value)
				}
			}
			out["available_strategies"] = names
		}
	}
	if e.Type == ContextPerception && e.members["target"] == nil {
		nest(e, out)
	}
	payload, err := wire.Marshal(out)
	if err != nil {
		return // as it came it does not have the shape of its type, and is refused
	}
	if members, err := wire.Members(payload); err == nil {
		e.Payload, e.members = payload, members
	}
}

// nest makes target and context from the members of the flat form.
func nest(e *Event, out map[string]any) {
	kind, name := e.text("target_type"), e.text("target_name")
	out["target"] = map[string]any{"entity": map[string]any{"name": name, "entity_type": kind}}
	around := map[string]any{"workspace": e.text("working_directory", "workspace")}
	if question := e.text("query"); question != "" {
		around["query"] = question
	}
	out["context"] = around
}

// snake writes ChainOfThought as chain_of_thought. ReAct becomes re_act, which is how
// AHP spells it.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) {
			if i > 0 {
				b.WriteByte('_')
			}
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}
