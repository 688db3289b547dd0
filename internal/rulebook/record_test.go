package rulebook_test

import (
	"testing"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/store/storetest"
)

func TestADecisionAboutOddTextIsRecordedAsItWas(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  []\n")
		n.act(agent("x"),
			policy.Event{Command: "a\x00b<&>\u2028", Arguments: map[string]any{"k\x00": "v\x00", "list": []any{"\x00"}}})
		report := n.replay("version: 1\nrules: [{name: nul, on: [action], when: "+
			"'event.command.contains(\"\\u0000b<&>\")', then: block}]\n", time.Time{})
		if report.Changed != 1 {
			t.Errorf("%+v", report)
		}
	})
}
