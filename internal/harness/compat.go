package harness

import (
	"strings"
	"unicode"

	"signalbox/internal/wire"
)

// CompatA3S names the dialect of A3S Code, the only one that is understood.
const CompatA3S = "a3s-code"

// adapt rewrites a typed payload as A3S Code sends it into the form that AHP fixes
// (AHP-53): the session comes from the envelope, enum values from Rust's debug form,
// and the flat form of a context becomes the nested one. What is right already stays.
// The stored event is not changed; replay adapts it again.
func (e *Event) adapt() {
	e.compat = true
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
