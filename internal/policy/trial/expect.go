package trial

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/policy/document"
	"signalbox/internal/secret"
)

// Expectation is what a test checks. Empty fields match anything.
type Expectation struct {
	Then   policy.Action
	Rule   string
	Reason string         // a part of it
	Set    map[string]any // what the rule sets
	// Payload is the payload after everything that the rule changes; credentials become their kind.
	Payload map[string]any
	Gate    map[string]any // how a person is asked: the keys of gate that are given
	Facts   map[string]any // what the call does: the facts that are given
}

// expectKeys are the keys of expect, and factKeys those of facts in it. docs/policy.md explains them.
var (
	expectKeys = []string{"then", "rule", "reason", "set", "payload", "gate", "facts"}
	factKeys   = []string{
		"does", "commands", "opaque", "opaque_reasons", "paths", "reads", "writes", "deletes", "hosts", "secrets",
	}
)

// differs says how a verdict differs from what was expected, "" if it does not. A rule that
// does not exist is pointed out, since a test with a misspelt name would never pass.
func (w *Expectation) differs(got policy.Verdict, e *policy.Event, rules []string) string {
	var wrong []string
	if got.Action != w.Then {
		wrong = append(wrong, fmt.Sprintf("then should be %s, and is %s by the rule %q", w.Then, got.Action, got.Rule))
	}
	if w.Rule != "" && got.Rule != w.Rule {
		text := fmt.Sprintf("the rule should be %q, and is %q", w.Rule, got.Rule)
		if n := fault.Nearest(w.Rule, rules); n != w.Rule && n != "" {
			text += fmt.Sprintf(" (there is no %q; did you mean %q?)", w.Rule, n)
		}
		wrong = append(wrong, text)
	}
	if !strings.Contains(got.Reason, w.Reason) {
		wrong = append(wrong, fmt.Sprintf("the reason should contain %q, and is %q", w.Reason, got.Reason))
	}
	same := func(name string, want, is any) {
		if a, b := plainJSON(want), plainJSON(is); a != b {
			wrong = append(wrong, fmt.Sprintf("%s should be %s, and is %s", name, a, b))
		}
	}
	if w.Set != nil {
		same("set", w.Set, got.Changes.Set)
	}
	if w.Payload != nil {
		e.Complete()
		same("the payload", w.Payload, got.Changes.Apply(e.Payload, secret.Hide))
	}
	is := gateValues(got.Gate)
	for _, name := range slices.Sorted(maps.Keys(w.Gate)) {
		same("gate."+name, w.Gate[name], is[name])
	}
	known := factValues(e)
	for _, name := range slices.Sorted(maps.Keys(w.Facts)) {
		same("facts."+name, w.Facts[name], known[name])
	}
	if len(wrong) > 0 && got.Failed {
		wrong = append(wrong, got.Reason)
	}
	return strings.Join(wrong, "; ")
}

// plainJSON writes a value so that two that mean the same are written alike.
func plainJSON(v any) string {
	if v := reflect.ValueOf(v); v.Kind() == reflect.Slice && v.Len() == 0 {
		return "[]"
	}
	text, err := policy.EncodeData(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// gateValues is how a person is asked, by the keys of a policy.
func gateValues(g *policy.GateSpec) map[string]any {
	if g == nil {
		return nil
	}
	escalation := []any{}
	for _, step := range g.Escalation {
		escalation = append(escalation, map[string]any{"after": document.FormatDuration(step.After), "to": step.To})
	}
	var uses any = g.Uses
	if g.Uses == policy.AnyUses {
		uses = "any"
	}
	return map[string]any{
		"expires": document.FormatDuration(g.Expires), "on_expiry": g.OnExpiry, "approvers": g.Approvers, "quorum": g.Quorum,
		"reject_needs": g.RejectNeeds, "remind_after": document.FormatDuration(g.RemindAfter), "escalation": escalation,
		"even_if_undeclared": g.EvenIfUndeclared, "uses": uses, "good_for": document.FormatDuration(g.GoodFor),
		"risk": g.Risk, "presence": g.Presence,
	}
}

// factValues are the facts of an event, by the names of its fields; of commands their names.
func factValues(e *policy.Event) map[string]any {
	f := e.Facts()
	names := make([]string, len(f.Commands))
	for i, c := range f.Commands {
		names[i] = c.Name
	}
	return map[string]any{
		"does": f.Does, "commands": names, "opaque": len(f.Opaque) > 0, "opaque_reasons": f.OpaqueReasons(), "paths": f.Paths,
		"reads": f.Reads, "writes": f.Writes, "deletes": f.Deletes, "hosts": f.Hosts, "secrets": e.Secrets(),
	}
}

// expectation reads what a test expects. then is required: a test that expects nothing would
// always pass.
func (r *reader) expectation(n *yaml.Node) Expectation {
	var w Expectation
	f, ok := r.Mapping(n, "expect", expectKeys...)
	if !ok {
		return w
	}
	if f["then"] == nil {
		r.Add(document.At(n), "Write expect: {then: block}.", "%q has no %q.", "expect", "then")
	} else {
		w.Then = policy.Action(r.OneOf(f["then"], "then", policy.Actions...))
	}
	if n := f["rule"]; n != nil {
		w.Rule = r.Text(n, "rule", "Name the rule that should decide, or default.")
	}
	if n := f["reason"]; n != nil {
		w.Reason = r.Text(n, "reason", "Write a part of the reason that should be given.")
	}
	w.Set, w.Payload = r.members(f["set"], "set", nil), r.members(f["payload"], "payload", nil)
	w.Gate, w.Facts = r.members(f["gate"], "gate", policy.GateKeys), r.members(f["facts"], "facts", factKeys)
	return w
}

// members reads a mapping of any values, under the given names if there are some.
func (r *reader) members(n *yaml.Node, name string, known []string) map[string]any {
	if n == nil {
		return nil
	}
	all, ok := r.Value(n, name).(map[string]any)
	if !ok {
		r.Add(document.At(n), "Write names and values, as in "+name+": {…}.", "%q should be a mapping.", name)
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if key := n.Content[i]; known != nil && !slices.Contains(known, key.Value) {
			r.Add(document.At(key), fault.DidYouMean(key.Value, known), "%s has no %q.", name, key.Value)
		}
	}
	return all
}
