package policy_test

import (
	"os"
	"testing"

	"signalbox/internal/policy"
)

// defaultTests are the examples of the default policy.
func defaultTests(t *testing.T) policy.Tests {
	t.Helper()
	source, err := os.ReadFile("testdata/default_test.yaml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := policy.ParseTests(source)
	if err != nil {
		t.Fatalf("%v\n%v", err, policy.Problems(err))
	}
	return tests
}

func TestTheDefaultPolicyDoesWhatItsExamplesSay(t *testing.T) {
	p := parse(t, string(policy.Default()))
	for _, r := range p.RunTests(defaultTests(t)) {
		if !r.Passed {
			t.Errorf("line %d, %s: %s", r.Line, r.Name, r.Problem)
		}
	}
}

func TestTheDefaultPolicyHasExamplesForEveryRule(t *testing.T) {
	p := parse(t, string(policy.Default()))
	decided := map[string]bool{}
	for _, r := range p.RunTests(defaultTests(t)) {
		decided[r.Got.Rule] = true
	}
	for _, r := range p.Rules() {
		if !decided[r.Name] {
			t.Errorf("no example is decided by %s", r.Name)
		}
	}
}

func TestTheLastRuleOfTheDefaultPolicyConfirmsDeclaredGates(t *testing.T) {
	rules := parse(t, string(policy.Default())).Rules()
	last := rules[len(rules)-1]
	if last.Then != policy.Gate || last.When != "event.declared" || last.Points[0] != policy.OnSignal {
		t.Errorf("the last rule is %+v", last)
	}
}

// parse reads a policy that is right.
func parse(tb testing.TB, source string) *policy.Policy {
	tb.Helper()
	p, err := policy.Parse([]byte(source))
	if err != nil {
		tb.Fatalf("%v\n%v", err, policy.Problems(err))
	}
	return p
}
