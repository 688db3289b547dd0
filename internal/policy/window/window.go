// Package window has the times that counters cover: the last ten minutes, or this day.
//
// It knows the calendar and how windows are written. It must not know what is counted.
package window

import (
	"time"

	"signalbox/internal/policy/document"
)

// Window is the time that a counter covers. It is either a length of time that ends now, in nanoseconds, or the hour,
// day or month of UTC in which now is. Those of the calendar are the same for everybody: they begin anew at once for
// all agents, and agree with the counters of the dashboard, which are by day.
type Window int64

// The windows of the calendar.
const (
	Hour Window = -1 - iota
	Day
	Month
)

// Longest is the longest window.
const Longest = 31 * 24 * time.Hour

// names are the windows of the calendar as they are written.
var names = map[string]Window{"hour": Hour, "day": Day, "month": Month}

// Names are the words for windows of the calendar, the shortest window first.
var Names = []string{"hour", "day", "month"}

// Last is the window of a length of time that ends now.
func Last(d time.Duration) Window { return Window(d) }

// Parse reads a window: a length of time such as 10m or 7d, or a word such as day.
func Parse(text string) (Window, bool) {
	if w, ok := names[text]; ok {
		return w, true
	}
	d, ok := document.ParseDuration(text)
	return Window(d), ok
}

// Fits reports whether a rule may use the window.
func (w Window) Fits() bool {
	return w.Calendar() || time.Duration(w) >= time.Second && time.Duration(w) <= Longest
}

// String is the window as it is written. Counters are stored under this text, so Parse reads it back.
func (w Window) String() string {
	if w.Calendar() {
		return Names[-1-w]
	}
	return document.FormatDuration(time.Duration(w))
}

// Calendar reports whether it is an hour, a day or a month of UTC.
func (w Window) Calendar() bool { return w < 0 && w >= Month }

// Number tells the hours, days and months of the calendar apart: that of the next one is one larger.
func (w Window) Number(at time.Time) int64 {
	at = at.UTC()
	switch w {
	case Hour:
		return at.Unix() / 3600
	case Day:
		return at.Unix() / 86400
	}
	return int64(at.Year())*12 + int64(at.Month()) - 1
}

// Begin is when the window begins that a moment is in.
func (w Window) Begin(at time.Time) time.Time {
	at = at.UTC()
	switch w {
	case Hour:
		return at.Truncate(time.Hour)
	case Day:
		return time.Date(at.Year(), at.Month(), at.Day(), 0, 0, 0, 0, time.UTC)
	case Month:
		return time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.UTC)
	}
	return at.Add(-time.Duration(w))
}

// End is when a window of the calendar begins anew, and the zero time for others, which never do.
func (w Window) End(at time.Time) time.Time {
	begin := w.Begin(at)
	switch w {
	case Hour:
		return begin.Add(time.Hour)
	case Day:
		return begin.AddDate(0, 0, 1)
	case Month:
		return begin.AddDate(0, 1, 0)
	}
	return time.Time{}
}
