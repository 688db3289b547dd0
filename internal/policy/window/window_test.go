package window_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/policy/window"
)

func TestAWindowIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]window.Window{
		"10m": window.Last(10 * time.Minute), "7d": window.Last(7 * 24 * time.Hour), "hour": window.Hour, "day": window.Day,
		"month": window.Month, "24h": window.Last(24 * time.Hour), "1d": window.Last(24 * time.Hour),
	} {
		got, ok := window.Parse(text)
		again, ok2 := window.Parse(got.String())
		if got != want || !ok || again != want || !ok2 || !got.Fits() {
			t.Errorf("%s is read as %s (%v), and again as %s", text, got, ok, again)
		}
	}
	for _, text := range []string{"", "Day", "days", "year", "-1h", "0s", "32d", "1ms"} {
		if w, ok := window.Parse(text); ok && w.Fits() {
			t.Errorf("%q is taken for the window %s", text, w)
		}
	}
}

// The law of a calendar: every moment is in one window, the numbers of windows count up by one, and a window ends when
// the next one begins.
func TestWindowsOfTheCalendarFollowEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := time.FixedZone("there", rapid.IntRange(-12*3600, 12*3600).Draw(t, "zone"))
		at := time.Unix(rapid.Int64Range(1_500_000_000, 4_000_000_000).Draw(t, "at"),
			rapid.Int64Range(0, 1e9-1).Draw(t, "nanos")).In(zone)
		for _, w := range []window.Window{window.Hour, window.Day, window.Month} {
			begin, end := w.Begin(at), w.End(at)
			if begin.After(at) || !end.After(at) || !w.Begin(end).Equal(end) || !w.Begin(begin).Equal(begin) {
				t.Fatalf("%s of %s is from %s to %s", w, at, begin, end)
			}
			n := w.Number(at)
			if w.Number(begin) != n || w.Number(end.Add(-1)) != n || w.Number(end) != n+1 {
				t.Fatalf("%s of %s is number %d, and that of its end %d", w, at, n, w.Number(end))
			}
		}
	})
}
