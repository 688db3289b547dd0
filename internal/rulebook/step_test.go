package rulebook

import (
	"testing"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/policy/window"
)

// TestATimeThatIsHealedTakesTheCountersWithIt: what was spent while the clock was a year ahead counts as spent when it was
// healed, and is forgotten a window later, not in a year.
func TestATimeThatIsHealedTakesTheCountersWithIt(t *testing.T) {
	of := Belongs{Agent: "x", Workspace: "w"}
	var all []counter
	for _, w := range []window.Window{window.Day, window.Last(10 * time.Minute)} {
		all = append(all, counter{policy.Count{What: "cost", Window: w}, ""})
	}
	tl, seq := newTally(all), int64(0)
	spend := func(n float64, at time.Time) {
		seq++
		var facts []Fact
		if n > 0 {
			facts = []Fact{{Belongs: of, What: "cost", N: n}}
		}
		tl.add(seq, "w", facts, at)
	}
	want := func(n float64, now time.Time) {
		t.Helper()
		for _, c := range all {
			if got, _ := tl.count(&of, c.Count, now, nil); got != n*1e9 {
				t.Errorf("%s at %s: $%v, want $%v", c.Window, now.Format(time.DateTime), got/1e9, n)
			}
		}
	}
	right := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	wrong := right.AddDate(1, 0, 0)
	spend(1, right)
	spend(2, wrong)
	want(2, wrong)
	spend(0, right.Add(time.Minute)) // clock.healed, which spends nothing
	want(2, right.Add(time.Minute))
	spend(4, right.Add(2*time.Minute))
	want(6, right.Add(2*time.Minute))
	want(0, right.AddDate(0, 0, 1))
	spend(8, right.AddDate(0, 0, 1))
	want(8, right.AddDate(0, 0, 1))
}
