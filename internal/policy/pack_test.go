package policy_test

import (
	"testing"

	"signalbox/internal/policy"
	"signalbox/internal/policy/trial"
)

func TestEveryPackDoesWhatItsExamplesSay(t *testing.T) {
	for _, pack := range policy.Packs {
		p := parse(t, string(pack.Source()))
		if err := p.Check(); err != nil {
			t.Errorf("%s: %v", pack.Name, policy.Problems(err))
		}
		tests, err := trial.Parse(pack.Tests())
		if err != nil {
			t.Fatalf("%s: %v\n%v", pack.Name, err, policy.Problems(err))
		}
		decided := map[string]bool{}
		for _, r := range tests.Run(p) {
			decided[r.Got.Rule] = true
			for _, shadow := range r.Got.Shadow {
				decided[shadow.Rule] = true
			}
			if !r.Passed {
				t.Errorf("%s, line %d, %s: %s", pack.Name, r.Line, r.Name, r.Problem)
			}
		}
		for _, r := range p.Rules() {
			if !decided[r.Name] {
				t.Errorf("%s: no example is decided by %s", pack.Name, r.Name)
			}
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
