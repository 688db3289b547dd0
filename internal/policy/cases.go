package policy

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"signalbox/internal/fault"
	"signalbox/internal/policy/document"
)

// Tests are examples of what a policy should say, as in a test file.
type Tests []Test

// Test is one example in a test file: an input and the verdict that is expected for it. What
// the example leaves out of the input is empty, as in an event.
type Test struct {
	Name  string
	Line  int // where it begins in the file
	Input Input
	Want  Expectation
}

// Expectation is the part of a verdict that a test checks. Empty fields match anything.
type Expectation struct {
	Then   Action `json:"then"`
	Rule   string `json:"rule,omitempty"`
	Reason string `json:"reason,omitempty"` // a part of it
}

// TestResult is the outcome of one test.
type TestResult struct {
	Name    string
	Line    int
	Passed  bool
	Got     Verdict
	Problem string // what was expected and what came, when it did not pass
}

// testKeys are the keys of a test. docs/policy.md explains them.
var testKeys = []string{"name", "point", "event", "agent", "recent", "now", "expect"}

// testTime is now in a test that does not say, so that it comes out the same on any day.
var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// RunTests decides every example. The policy does not change, and nothing is recorded.
func (p *Policy) RunTests(tests Tests) []TestResult {
	results := make([]TestResult, len(tests))
	for i, t := range tests {
		got := p.Decide(context.Background(), t.Input)
		problem := t.Want.differs(got, p.names())
		results[i] = TestResult{t.Name, t.Line, problem == "", got, problem}
	}
	return results
}

func (p *Policy) names() []string {
	names := []string{DefaultRule}
	for _, r := range p.rules {
		names = append(names, r.name)
	}
	return names
}

// differs says how a verdict differs from what was expected, "" if it does not. A rule that
// does not exist is pointed out, since a test with a misspelt name would never pass.
func (w Expectation) differs(got Verdict, rules []string) string {
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
	if len(wrong) > 0 && got.Failed {
		wrong = append(wrong, got.Reason)
	}
	return strings.Join(wrong, "; ")
}

// ParseTests reads a test file. Everything that is wrong with it is in the error, as
// with Parse.
func ParseTests(source []byte) (Tests, error) {
	r := &reader{}
	var tests Tests
	if doc := r.Read(source, "test file"); doc != nil {
		if f, ok := r.Mapping(doc, "The test file", "version", "tests"); ok {
			r.version(doc, f)
			if n := f["tests"]; n == nil {
				r.Add(document.At(doc), "Write a list of tests, each beginning with \"- name: …\".", "There are no tests.")
			} else {
				for _, item := range r.List(n, "tests", "Write a list of tests, each beginning with \"- name: …\".") {
					tests = append(tests, r.test(item))
				}
			}
		}
	}
	if err := r.Fault(); err != nil {
		return nil, err
	}
	return tests, nil
}

// test reads one example. now has a fixed default, so that tests of rules with times do not
// depend on the day on which they run.
func (r *reader) test(n *yaml.Node) Test {
	t := Test{Line: n.Line, Input: Input{Now: testTime}}
	f, ok := r.Mapping(n, "A test", testKeys...)
	if !ok {
		return t
	}
	for _, name := range []string{"name", "point", "expect"} {
		if f[name] == nil {
			r.Add(document.At(n), `A test has a name, a point and what to expect, as in expect: {then: block}.`,
				"The test has no %q.", name)
		}
	}
	if n := f["name"]; n != nil {
		t.Name = r.Text(n, "name", "Write a sentence that says what the example shows.")
	}
	if n := f["event"]; n != nil {
		decode(r.object(n, "event", "point", typesOf(eventFields)), &t.Input.Event)
	}
	if n := f["point"]; n != nil {
		t.Input.Event.Point = Point(r.OneOf(n, "point", pointNames(Points)...))
	}
	if n := f["agent"]; n != nil {
		decode(r.object(n, "agent", "", typesOf(agentFields)), &t.Input.Agent)
	}
	if n := f["recent"]; n != nil {
		t.Input.Counts = r.counts(n)
	}
	if n := f["now"]; n != nil {
		t.Input.Now = r.time(n, "now")
	}
	if n := f["expect"]; n != nil {
		t.Want = r.expectation(n)
	}
	return t
}

// expectation reads what a test expects. then is required: a test that expects nothing would
// always pass.
func (r *reader) expectation(n *yaml.Node) Expectation {
	var w Expectation
	f, ok := r.Mapping(n, "expect", "then", "rule", "reason")
	if !ok {
		return w
	}
	if f["then"] == nil {
		r.Add(document.At(n), "Write expect: {then: block}.", "%q has no %q.", "expect", "then")
	} else {
		w.Then = Action(r.OneOf(f["then"], "then", actions...))
	}
	if n := f["rule"]; n != nil {
		w.Rule = r.Text(n, "rule", "Name the rule that should decide, or default.")
	}
	if n := f["reason"]; n != nil {
		w.Reason = r.Text(n, "reason", "Write a part of the reason that should be given.")
	}
	return w
}

// typesOf are the types of the fields that rules see, by name.
func typesOf[T any](fields map[string]field[T]) map[string]*cel.Type {
	kinds := map[string]*cel.Type{}
	for name, f := range fields {
		kinds[name] = f.typ
	}
	return kinds
}

// object reads the fields of event or agent, of the types that rules see.
func (r *reader) object(n *yaml.Node, what, except string, known map[string]*cel.Type) map[string]any {
	delete(known, except)
	f, _ := r.Mapping(n, what, sortedKeys(known)...)
	values := map[string]any{}
	for name, node := range f {
		if !isOfType(node, known[name]) {
			r.Add(document.At(node), fmt.Sprintf("Rules see it as %s.", typeWords(known[name])), "%q should be %s, and is %s.",
				what+"."+name, typeWords(known[name]), document.KindOf(node))
			continue
		}
		values[name] = r.Value(node, what+"."+name)
	}
	return values
}

// isOfType reports whether a node is right for a field; what is inside of maps and
// lists matters only where it must be text.
func isOfType(n *yaml.Node, t *cel.Type) bool {
	switch t.Kind() {
	case types.StringKind:
		return n.Tag == "!!str" || n.Tag == "!!timestamp"
	case types.BoolKind:
		return n.Tag == "!!bool"
	case types.IntKind:
		return n.Tag == "!!int"
	case types.DoubleKind:
		return n.Tag == "!!int" || n.Tag == "!!float"
	case types.ListKind:
		return n.Kind == yaml.SequenceNode && itemsAre(n.Content, 1, t.Parameters()[0])
	case types.MapKind:
		return n.Kind == yaml.MappingNode && itemsAre(n.Content, 2, t.Parameters()[1])
	}
	return true
}

// itemsAre checks every step-th node: the items of a list, or the values of a mapping.
func itemsAre(nodes []*yaml.Node, step int, t *cel.Type) bool {
	for i := step - 1; i < len(nodes); i += step {
		if !isOfType(nodes[i], t) {
			return false
		}
	}
	return true
}

// decode fills a struct by its JSON names. The types were checked, so it cannot fail.
func decode(values map[string]any, into any) {
	if text, err := encodeData(values); err == nil {
		_ = DecodeData(text, into)
	}
}

// counts reads {actions: {10m: 12}}.
func (r *reader) counts(n *yaml.Node) Counts {
	counts := Counts{}
	f, _ := r.Mapping(n, "recent", sortedKeys(counters)...)
	for name, node := range f {
		windows, _ := r.AnyMapping(node, `"recent.`+name+`"`, func(key *yaml.Node) bool {
			if _, ok := document.ParseDuration(key.Value); !ok {
				r.Add(document.At(key), "Write a length of time such as 10m, 24h or 7d.", "%q is not a length of time.", key.Value)
				return false
			}
			return true
		})
		counts[name] = map[string]float64{}
		for window, value := range windows {
			if text, ok := r.Scalar(value, "recent."+name, "Write a number.", "!!int", "!!float"); ok {
				var number float64
				if err := value.Decode(&number); err != nil {
					r.Add(document.At(value), "Write a number.", "%q is not a number.", text)
				}
				counts[name][window] = number
			}
		}
	}
	return counts
}

// time reads a time in RFC 3339, which YAML may have recognised as one.
func (r *reader) time(n *yaml.Node, name string) time.Time {
	const form = "Write a time such as 2026-05-01T12:00:00Z."
	text, ok := r.Scalar(n, name, form, "!!timestamp", "!!str")
	if !ok {
		return testTime
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		r.Add(document.At(n), form, "%q cannot be %q.", name, text)
	}
	return t
}
