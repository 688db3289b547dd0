package rulebook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
	"signalbox/internal/store/storetest"
)

func (n *node) replay(source string, since time.Time) rulebook.Report {
	n.T.Helper()
	p, err := policy.Parse([]byte(source))
	if err != nil {
		n.T.Fatal(err)
	}
	report, err := n.book.Replay(n.T.Context(), p, since, func(int64, int64) {})
	if err != nil {
		n.T.Fatal(err)
	}
	return report
}

func TestAReplaySaysWhichDecisionsWouldHaveComeOutOtherwise(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply(noBash)
		for i := range 8 {
			n.act(agent("x"), policy.Event{Tool: "bash", Command: fmt.Sprintf("make %d", i)})
			n.act(agent("y"), policy.Event{
				Tool: "read", Path: "/etc/hosts",
				Arguments: map[string]any{"lines": json.Number("12345678901234567890"), "all": true},
			})
		}
		middle := n.Now()
		n.act(agent("x"), policy.Event{Tool: "bash", Command: strings.Repeat("é", 300)})
		n.act(agent("y"), policy.Event{Point: policy.OnMessage, Subject: "Hello"})

		other := "version: 1\nrules:\n" +
			"  - {name: hosts, on: [action], when: 'event.path == \"/etc/hosts\" && " +
			"event.arguments.all', then: gate, reason: Look at it.}\n" +
			"  - {name: long, on: [action], when: 'event.command.size() > 100', then: block}\n"
		report := n.replay(other, time.Time{})
		if report.Decisions != 18 || report.Changed != 16 || report.OtherRule != 1 || report.Erased != 0 ||
			len(report.Changes) != 2 {
			t.Fatalf("%+v", report)
		}
		first := report.Changes[0]
		if first.Count != 8 || first.Was != (rulebook.Outcome{Then: policy.Block, Rule: "no-bash"}) ||
			first.Would != (rulebook.Outcome{Then: policy.Allow, Rule: policy.DefaultRule}) || len(first.Examples) != 8 {
			t.Errorf("%+v", first)
		}
		if e := first.Examples[0]; e.Agent != "x" || e.What != "bash: make 0" || e.Workspace != "default" {
			t.Errorf("%+v", e)
		}
		if second := report.Changes[1]; second.Would.Then != policy.Gate || second.Examples[0].Reason != "Look at it." ||
			second.Examples[0].What != "read: /etc/hosts" {
			t.Errorf("%+v", second)
		}
		if report := n.replay(other, middle); report.Decisions != 2 || report.Changed != 0 || report.OtherRule != 1 {
			t.Errorf("since the middle: %+v", report)
		}
		if before, after := n.heads(); before != after {
			t.Errorf("a replay wrote %d entries", after-before)
		}
	})
}

// heads are the head before and after a replay.
func (n *node) heads() (before, after int64) {
	before, _ = n.Ledger.Head(n.T.Context())
	n.replay("version: 1\ndefaults: {action: block}\n", time.Time{})
	after, _ = n.Ledger.Head(n.T.Context())
	return before, after
}

// Counters that a policy asks for and the records do not have are counted anew.
func TestAReplayCountsWhatWasDoneUntilThen(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  []\n")
		for range 5 {
			n.act(agent("x"), policy.Event{Tool: "t"})
			n.act(agent("y"), policy.Event{Point: policy.OnPrompt})
		}
		middle := n.Now()
		for range 5 {
			n.act(agent("x"), policy.Event{Tool: "t"})
		}
		limit := "version: 1\nrules:\n  - {name: many, on: [action], when: 'recent.actions(\"1h\") >= 7', then: defer}\n"
		if report := n.replay(limit, time.Time{}); report.Decisions != 15 || report.Changed != 3 ||
			report.Changes[0].Would.Rule != "many" {
			t.Errorf("%+v", report)
		}
		if report := n.replay(limit, middle); report.Decisions != 5 || report.Changed != 3 {
			t.Errorf("since the middle, what came before is counted: %+v", report)
		}
	})
}

// The law of replay: a version over its own decisions changes nothing.
func TestAVersionReplayedOverItsOwnDecisionsChangesNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		source := counting + noBash +
			"  - {name: dear, on: [action, prompt], when: 'event.cost_usd > 0.5 && recent.cost(\"1h\") > 3.0', then: defer}\n" +
			"  - {name: odd, on: [prompt], when: '10 / event.depth > 3', then: gate}\n" + // fails at 0
			"  - {name: data, on: [action], when: 'event.arguments.n > 5 || " +
			"event.arguments.list.exists(i, i == 3)', then: modify, set: {n: 1}}\n"
		n.apply(source)
		rapid.Check(t, func(t *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(t, "actions") {
				n.act(agent(rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "agent")), policy.Event{
					Point:   rapid.SampledFrom([]policy.Point{policy.OnAction, policy.OnPrompt}).Draw(t, "point"),
					Tool:    rapid.SampledFrom([]string{"bash", "read", ""}).Draw(t, "tool"),
					Depth:   rapid.Int64Range(0, 9).Draw(t, "depth"),
					CostUSD: rapid.Float64Range(0, 1).Draw(t, "cost"),
					Arguments: map[string]any{
						"n":    json.Number(fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "n"))),
						"text": rapid.String().Draw(t, "text"), "list": []any{1.5, json.Number("3"), nil},
					},
				})
			}
		})
		report := n.replay("version: 1\nrules:\n"+source, time.Time{})
		if report.Decisions == 0 || report.Changed != 0 || report.OtherRule != 0 {
			t.Errorf("%+v", report)
		}
	})
}

func TestAReplayGoesWithoutWhatWasErased(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  []\n")
		n.act(agent("x"), policy.Event{})
		if _, err := n.Ledger.Erase(t.Context(), n.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		n.act(agent("x"), policy.Event{})
		if report := n.replay("version: 1\n", time.Time{}); report.Decisions != 1 || report.Erased != 1 {
			t.Errorf("%+v", report)
		}
		n.apply(counting) // counts over what was erased
		if d := n.act(agent("x"), policy.Event{}); d.Action != policy.Allow || seen(d, "actions", "10m") != 1 {
			t.Errorf("%+v", d)
		}
		if _, source, err := n.book.Version(t.Context(), rulebook.Layer{}, 1); err != nil || len(source) == 0 {
			t.Errorf("a policy was erased: %q %v", source, err)
		}
	})
}

func TestAReplayThatIsCutShortReportsNothing(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		n.apply("  []\n")
		err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
			d := n.book.Decide(t.Context(), agent("x"), policy.Event{Point: policy.OnAction})
			for range 10_000 {
				tx.Append(d.Entry(agent("x"), "", ""))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		p, _ := policy.Parse([]byte("version: 1\nrules: [{name: a, on: [action], when: 'true', then: allow}]\n"))
		ctx, cancel := context.WithCancel(t.Context())
		report, err := n.book.Replay(ctx, p, time.Time{}, func(int64, int64) { cancel() })
		if !errors.Is(err, context.Canceled) || report.Decisions != 0 {
			t.Errorf("%+v %v", report, err)
		}
	})
}
