package wire

import (
	"regexp"
	"time"
)

// moment is the form of RFC 3339; time.Parse also accepts T2:10:38 and 38,5 seconds.
var moment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

// Time reads a moment. A time without a zone is refused, since it could mean any of 26 hours.
func (f *Fields) Time(name string) (t time.Time) {
	f.Matching(name, func() string {
		return "a time with its zone (RFC 3339), such as \"2026-03-06T22:10:38Z\""
	}, func(s string) bool {
		var err error
		t, err = time.Parse(time.RFC3339Nano, s)
		return err == nil && moment.MatchString(s)
	})
	if f.Failed(name) {
		return time.Time{}
	}
	return t
}
