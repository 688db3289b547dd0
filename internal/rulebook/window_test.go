package rulebook

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/policy"
	"signalbox/internal/policy/window"
)

// A window counts everything in it, and nothing that is more than a sixtieth older.
func TestAWindowCountsNoLessAndHardlyMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		length := time.Duration(rapid.Int64Range(int64(time.Second), int64(31*24*time.Hour)).Draw(t, "window"))
		c := policy.Count{What: "actions", Window: window.Last(length)}
		tl := newTally([]counter{
			{c, ""}, {policy.Count{What: "actions", Window: window.Last(length / 2)}, ""},
			{policy.Count{What: "cost", Window: window.Last(length)}, ""},
		})
		at := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
		type event struct {
			at    time.Time
			agent string
			n     float64
		}
		var all []event
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			// Short and long pauses, some longer than the window.
			at = at.Add(time.Duration(rapid.Float64Range(0, 1).Draw(t,
				"pause") * float64(length) / rapid.SampledFrom([]float64{100, 10, 0.4}).Draw(t, "scale")))
			e := event{at, rapid.SampledFrom([]string{"x", "y"}).Draw(t, "agent"), float64(rapid.IntRange(1, 9).Draw(t, "n"))}
			all = append(all, e)
			tl.add(int64(len(all)), "", []Fact{{Belongs: Belongs{Agent: e.agent}, What: "actions", N: e.n}}, at)
			now := at.Add(time.Duration(rapid.Float64Range(0, 1.2).Draw(t, "later") * float64(length)))
			least, most := 0.0, 0.0
			for _, e := range all {
				if e.agent != "x" {
					continue
				}
				if age := now.Sub(e.at); age < length {
					least += e.n
					most += e.n
				} else if age <= length+length/parts+1 {
					most += e.n
				}
			}
			if got, _ := tl.count(&Belongs{Agent: "x"}, c, now, nil); got < least || got > most {
				t.Fatalf("window %s: counted %v, want %v to %v", length, got, least, most)
			}
		}
		tl.forget(at.Add(2 * length))
		if len(tl.all) != 0 {
			t.Fatalf("%d idle agents are kept", len(tl.all))
		}
	})
}
