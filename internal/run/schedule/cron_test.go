package schedule_test

import (
	"testing"
	"time"

	"signalbox/internal/run/schedule"
)

func TestNextFollowsTheFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ cron, zone, after, want string }{
		{"30 9 * * mon-fri", "UTC", "2026-11-20T09:30:00Z", "2026-11-23T09:30:00Z"}, // a Friday
		{"*/15 * * * *", "", "2026-11-18T10:14:59Z", "2026-11-18T10:15:00Z"},
		{"5/20 0-1 * * *", "", "2026-11-18T00:45:00Z", "2026-11-18T01:05:00Z"},
		{"0 0 13 * fri", "", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"}, // one of the two is enough
		{"0 0 29 feb *", "", "2097-01-01T00:00:00Z", "2104-02-29T00:00:00Z"}, // 2100 has none
		{"0 12 * * 7", "", "2026-11-18T00:00:00Z", "2026-11-22T12:00:00Z"},   // Sunday
		{"@monthly", "", "2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"0 9 * * *", "Europe/Berlin", "2026-07-01T06:59:00Z", "2026-07-01T07:00:00Z"},
		{"0 9 * * *", "Europe/Berlin", "2026-12-01T07:59:00Z", "2026-12-01T08:00:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", "2026-03-29T01:00:00Z"}, // which is left out that night
		{"30 2 * * *", "Europe/Berlin", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"30 1 * * *", "America/New_York", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"}, // which comes twice that night
		{"0 0 * * *", "America/Havana", "2026-03-07T12:00:00Z", "2026-03-08T05:00:00Z"},    // midnight is left out
	} {
		parsed, err := schedule.Parse(c.cron, c.zone)
		if err != nil {
			t.Errorf("%s: %v", c.cron, err)
			continue
		}
		after, _ := time.Parse(time.RFC3339, c.after)
		if got := parsed.Next(after).Format(time.RFC3339); got != c.want {
			t.Errorf("%s in %q after %s is %s, want %s", c.cron, c.zone, c.after, got, c.want)
		}
	}
}

// TestLawTimesGoOn: the next time is later, whole minutes, and there is one within a day for what is due daily.
func TestLawTimesGoOn(t *testing.T) {
	t.Parallel()
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Cairo"} {
		c, err := schedule.Parse("*/30 */3 * * *", zone)
		if err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		for range 6000 { // a year
			next := c.Next(at)
			if !next.After(at) || next.Sub(at) > 6*time.Hour || next.Second() != 0 {
				t.Fatalf("%s: after %s comes %s", zone, at, next)
			}
			at = next
		}
	}
}

func TestWhatIsNoTimeIsRefused(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8", "5-1 * * * *", "*/0 * * * *",
		"a * * * *", "1,,2 * * * *", "-1 * * * *", "0 0 31 feb *", "@reboot", "*/x * * * *", "1-2-3 * * * *",
	} {
		if _, err := schedule.Parse(text, "UTC"); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	for _, zone := range []string{"Mars/Olympus", "local", "../../etc/passwd"} {
		if _, err := schedule.Parse("@daily", zone); err == nil {
			t.Errorf("%q is taken", zone)
		}
	}
}
