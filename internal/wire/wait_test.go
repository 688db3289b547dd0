package wire_test

import (
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

func TestAWaitIsALengthOfTimeOrANumberOfSeconds(t *testing.T) {
	for query, want := range map[string]time.Duration{
		"": 0, "wait=": 0, "wait=0": 0, "wait=30s": 30 * time.Second, "wait=7": 7 * time.Second,
		"wait=250ms": 250 * time.Millisecond,
		"wait=5m":    time.Minute, "wait=600": time.Minute, "wait=9223372036854775807": time.Minute,
		"wait=-1": -1, "wait=-1s": -1, "wait=soon": -1, "wait=1.5": -1, "wait=99999999999999999999": -1,
	} {
		got, err := wire.QueryWait(get(t, query), time.Minute)
		if want >= 0 && (got != want || err != nil) || want < 0 && !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("%q: %v, %v", query, got, err)
		}
	}
	_, err := wire.QueryWait(get(t, "wait=soon"), 55*time.Second)
	if got := fault.From(err).Message; got != `wait should be a length of time such as 30s, 55s at most, and is "soon".` {
		t.Error(got)
	}
}

func TestPreferencesAreFoundAmongOthers(t *testing.T) {
	for _, c := range []struct {
		headers []string
		wait    time.Duration
		name    bool
	}{
		{nil, 0, false},
		{[]string{"wait=10"}, 10 * time.Second, false},
		{[]string{`respond-async, WAIT = "10"; strict`, "resolved-by"}, 10 * time.Second, true},
		{[]string{"Resolved-By=yes, wait=99999"}, time.Minute, true},
		{[]string{"wait=soon", "wait=-3, wait=2"}, 2 * time.Second, false},
		{[]string{"waiting=10"}, 0, false},
	} {
		r := get(t, "")
		r.Header["Prefer"] = c.headers
		if wait, name := wire.PreferredWait(r, time.Minute), wire.Prefers(r, "resolved-by"); wait != c.wait ||
			name != c.name {
			t.Errorf("%q: %v, %v", c.headers, wait, name)
		}
	}
}
