package address_test

import (
	"testing"

	"signalbox/internal/address"
)

func TestAPageIsAtItsPathWithTheNamesFilledIn(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{address.Inbox.At(), "/ui/inbox"},
		{address.Gate.At("gate_1"), "/ui/inbox/gate_1"},
		{address.Agent.At("acme", "a/b"), "/ui/agents/acme/a%2Fb"},
		{address.Session.At("acme", "s 1"), "/ui/sessions/acme/s%201"},
		{address.Gate.Of("decide"), "/ui/inbox/{id}/decide"},
	} {
		if c.got != c.want {
			t.Errorf("%s, want %s", c.got, c.want)
		}
	}
}

func TestAPageWithoutItsNamesIsAMistake(t *testing.T) {
	for name, call := range map[string]func(){
		"too few":  func() { address.Gate.At() },
		"too many": func() { address.Inbox.At("gate_1") },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("nothing happened")
				}
			}()
			call()
		})
	}
}
