package document

import (
	"regexp"
	"strconv"
	"time"
)

// days is the one unit that time.ParseDuration does not know and people use.
var days = regexp.MustCompile(`^([0-9]{1,4})d$`)

// ParseDuration reads a positive length of time such as 90s, 10m, 1h30m, 24h or 7d. A day is
// 24 hours, and cannot be combined with other units.
func ParseDuration(text string) (time.Duration, bool) {
	if m := days.FindStringSubmatch(text); m != nil {
		n, err := strconv.Atoi(m[1])
		return time.Duration(n) * 24 * time.Hour, err == nil && n > 0
	}
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

// FormatDuration is how a person writes it: 10m and not 10m0s, 7d and not 168h0m0s. Counters
// are stored under this text, so ParseDuration has to read it back.
func FormatDuration(d time.Duration) string {
	units := []struct {
		name string
		unit time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for _, u := range units {
		if d >= u.unit && d%u.unit == 0 {
			return strconv.FormatInt(int64(d/u.unit), 10) + u.name
		}
	}
	return d.String()
}
