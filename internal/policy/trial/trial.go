// Package trial tries a policy with examples: test files in, and which of them came out as expected.
//
// It owns the form of a test file and the comparison. It must not know more of a policy than what decides, nor where
// either is kept.
package trial

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"signalbox/internal/fault"
	"signalbox/internal/policy"
	"signalbox/internal/policy/document"
	"signalbox/internal/policy/window"
)

// reader reads test files.
type reader struct{ document.Reader }

// Tests are examples of what a policy should say, as in a test file.
type Tests []Test

// Test is one example in a test file: an input and the verdict that is expected for it. What
// the example leaves out of the input is empty, as in an event.
type Test struct {
	Name  string
	Line  int // where it begins in the file
	Input policy.Input
	Want  Expectation
}

// Result is the outcome of one test.
type Result struct {
	Name    string
	Line    int
	Passed  bool
	Got     policy.Verdict
	Problem string // what was expected and what came, when it did not pass
}

// Keys are the keys of a test. docs/policy.md explains them.
var Keys = []string{"name", "point", "event", "agent", "user", "delegation", "recent", "reserved", "now", "expect"}

// testTime is now in a test that does not say, so that it comes out the same on any day.
var testTime = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// Run decides every example. The policy does not change, and nothing is recorded.
func (tests Tests) Run(p *policy.Policy) []Result {
	results, names := make([]Result, len(tests)), []string{policy.DefaultRule}
	for _, r := range p.Rules() {
		names = append(names, r.Name)
	}
	for i, t := range tests {
		got := p.Decide(context.Background(), t.Input)
		problem := t.Want.differs(got, t.Input.Event, names)
		results[i] = Result{t.Name, t.Line, problem == "", got, problem}
	}
	return results
}

// Parse reads a test file. Everything that is wrong with it is in the error, as with
// policy.Parse.
func Parse(source []byte) (Tests, error) {
	r := &reader{}
	var tests Tests
	if doc := r.Read(source, "test file"); doc != nil {
		if f, ok := r.Mapping(doc, "The test file", "version", "tests"); ok {
			r.Version(doc, f)
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
	t := Test{Line: n.Line, Input: policy.Input{Event: &policy.Event{}, Now: testTime}}
	f, ok := r.Mapping(n, "A test", Keys...)
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
		decode(r.object(n, "event", "point", policy.FieldTypes("event")), t.Input.Event)
	}
	if n := f["point"]; n != nil {
		t.Input.Event.Point = policy.Point(r.OneOf(n, "point", policy.PointNames()...))
	}
	if n := f["agent"]; n != nil {
		decode(r.object(n, "agent", "", policy.FieldTypes("agent")), &t.Input.Agent)
	}
	if n := f["user"]; n != nil {
		decode(r.object(n, "user", "", policy.FieldTypes("user")), &t.Input.User)
		t.Input.Scopes = t.Input.User.Scopes
	}
	if n := f["delegation"]; n != nil {
		t.Input.Delegation = &policy.Delegation{}
		decode(r.object(n, "delegation", "", policy.FieldTypes("delegation")), t.Input.Delegation)
	}
	if n := f["recent"]; n != nil {
		t.Input.Counts = r.counts(n, "recent")
	}
	if n := f["reserved"]; n != nil {
		t.Input.Reserved = r.counts(n, "reserved")
	}
	if n := f["now"]; n != nil {
		t.Input.Now = r.time(n, "now")
	}
	if n := f["expect"]; n != nil {
		t.Want = r.expectation(n)
	}
	return t
}

// object reads the fields of event or agent, of the types that rules see.
func (r *reader) object(n *yaml.Node, what, except string, known map[string]*cel.Type) map[string]any {
	delete(known, except)
	f, _ := r.Mapping(n, what, slices.Sorted(maps.Keys(known))...)
	values := map[string]any{}
	for name, node := range f {
		if !isOfType(node, known[name]) {
			r.Add(document.At(node), fmt.Sprintf("Rules see it as %s.", policy.TypeWords(known[name])), "%q should be %s, and is %s.",
				what+"."+name, policy.TypeWords(known[name]), document.KindOf(node))
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
	if text, err := policy.EncodeData(values); err == nil {
		_ = policy.DecodeData(text, into)
	}
}

// counts reads {actions: {10m: 12}}.
func (r *reader) counts(n *yaml.Node, of string) policy.Counts {
	counts := policy.Counts{}
	f, _ := r.AnyMapping(n, of, func(key *yaml.Node) bool {
		if policy.IsCounter(key.Value) {
			return true
		}
		r.Add(document.At(key), fault.DidYouMean(key.Value, policy.CounterNames())+
			` A counter of one tool, session, tier, user, run, deck or workspace is written "actions.tool", that of a rule "by_rule.NAME".`,
			"There is no counter %q.", key.Value)
		return false
	})
	for name, node := range f {
		windows, _ := r.AnyMapping(node, `"`+of+"."+name+`"`, func(key *yaml.Node) bool {
			if w, ok := window.Parse(key.Value); !ok || !w.Fits() {
				r.Add(document.At(key), "Write a length of time such as 10m, 24h or 7d, or hour, day or month.",
					"%q is not a length of time.", key.Value)
				return false
			}
			return true
		})
		counts[name] = map[string]float64{}
		for window, value := range windows {
			if text, ok := r.Scalar(value, of+"."+name, "Write a number.", "!!int", "!!float"); ok {
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
