package gate_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/ledger"
	"signalbox/internal/secret/secrettest"
	"signalbox/internal/store/storetest"
)

// contextOf opens a gate with a context, and is what is shown of it.
func (n *node) contextOf(context ...gate.Fact) gate.Gate {
	n.T.Helper()
	return gatetest.Get(n.Node, n.gates, gatetest.Open(n.Node, "default", gate.Opening{
		Agent: "agent_1", AgentName: "a", Risk: "low", Shown: gate.Shown{Title: "Send it"}, Context: context,
	}))
}

func TestWhatLedToAGateIsSeenAndNotApproved(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		prompt := gate.Fact{Name: "last prompt", Value: "Send the report.\nThen stop."}
		plain, led := n.contextOf(), n.contextOf(prompt, gate.Fact{Name: "branch"})
		if diff := cmp.Diff([]gate.Fact{prompt}, led.Context); diff != "" {
			t.Errorf("the context is not what it was opened with: %s", diff)
		}
		if plain.Context != nil || plain.ActionDigest != led.ActionDigest {
			t.Errorf("what is approved is %s, and with a context %s", plain.ActionDigest, led.ActionDigest)
		}
		other := led
		other.Context = []gate.Fact{{Name: "last prompt", Value: "Send it to eve."}}
		if other.ShownDigest() == led.ShownDigest() {
			t.Error("what is seen does not depend on the context")
		}
		// A gate without one is stored as it always was.
		entries, err := n.Ledger.Entries(t.Context(), ledger.Query{Subject: plain.ID, Kinds: []string{"gate.opened"}})
		if err != nil || len(entries) != 1 || strings.Contains(string(entries[0].Body), "context") ||
			strings.Contains(string(entries[0].Body), `"run"`) {
			t.Errorf("%s %v", entries[0].Body, err)
		}
		n.WantClean()
	})
}

func TestALongContextKeepsItsBeginningAndItsEnd(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		token := "ghp_" + secrettest.Alnum(36)
		for name, text := range map[string]string{
			"long":            "BEGIN " + strings.Repeat("long ", 200_000) + " END",
			"characters":      "BEGIN " + strings.Repeat("東", 500_000) + " END",
			"no text":         "BEGIN \xff\x00" + strings.Repeat("\xffa", 50_000) + " END",
			"a cut token":     "BEGIN " + strings.Repeat("x", 3040) + " " + token + strings.Repeat(" y", 5000) + " END",
			"a token cut off": "BEGIN " + strings.Repeat("x ", 5000) + token + " " + strings.Repeat("y", 995) + " END",
		} {
			got := n.contextOf(gate.Fact{Name: "last prompt", Value: text}).Context[0].Value
			if len(got) > 4300 || !strings.HasPrefix(got, "BEGIN ") || !strings.HasSuffix(got, " END") ||
				!strings.Contains(got, "bytes left out") || !utf8.ValidString(got) || strings.Contains(got, "\x00") {
				t.Errorf("%s: %d bytes, %.60q … %q", name, len(got), got, got[max(0, len(got)-60):])
			}
			for i := range len(token) - 10 {
				if strings.Contains(got, token[i:i+10]) {
					t.Fatalf("%s: a part of the token is left: %q", name, token[i:i+10])
				}
			}
		}
	})
}

func TestOnlyARunOfOursIsARun(t *testing.T) {
	for said, want := range map[string]string{
		"run_01jt4k9q2m8x3v7b5n6c0d1e2f": "run_01jt4k9q2m8x3v7b5n6c0d1e2f", "run-1": "", "": "",
		"run_01jt4k9q2m8x3v7b5n6c0d1e2f; rm -rf /": "", "gate_01jt4k9q2m8x3v7b5n6c0d1e2f": "",
	} {
		if got := gate.AskedBy(said); got != want {
			t.Errorf("%q is %q", said, got)
		}
	}
}
