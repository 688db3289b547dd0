package wire

import (
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
)

// QueryWait reads ?wait=, a length of time such as 30s or a number of seconds. It is no
// longer than most, and 0 when absent.
func QueryWait(r *http.Request, most time.Duration) (time.Duration, error) {
	text := r.URL.Query().Get("wait")
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if n, e := strconv.Atoi(text); e == nil {
		d, err = seconds(n, most), nil
	}
	if err != nil || d < 0 {
		longest := strconv.Itoa(int(most/time.Second)) + "s"
		return 0, fault.New(fault.InvalidRequest, "wait should be a length of time such as 30s, %s at most, and is %.40q.",
			longest, text).About("wait")
	}
	return min(d, most), nil
}

// PreferredWait reads Prefer: wait=n, a number of seconds. It is no longer than most, and 0 if
// absent. A value that is not understood is ignored, as RFC 7240 asks for.
func PreferredWait(r *http.Request, most time.Duration) time.Duration {
	for value := range preferences(r, "wait") {
		if n, err := strconv.Atoi(value); err == nil && n > 0 {
			return seconds(n, most)
		}
	}
	return 0
}

// Prefers reports whether a call has a preference (RFC 7240), such as resolved-by.
func Prefers(r *http.Request, name string) bool {
	for range preferences(r, name) {
		return true
	}
	return false
}

// preferences are the values of a preference in Prefer headers. Other preferences are
// passed over, as RFC 7240 asks for.
func preferences(r *http.Request, want string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, header := range r.Header.Values("Prefer") {
			for part := range strings.SplitSeq(header, ",") {
				part, _, _ = strings.Cut(part, ";") // parameters
				name, value, _ := strings.Cut(part, "=")
				if strings.EqualFold(strings.TrimSpace(name), want) && !yield(strings.Trim(strings.TrimSpace(value), `"`)) {
					return
				}
			}
		}
	}
}

// seconds is a number of seconds, no longer than most: a huge number would overflow. What
// is below 0 stays so.
func seconds(n int, most time.Duration) time.Duration {
	return time.Duration(max(-1, min(n, int(most/time.Second)))) * time.Second
}
