package bench

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/testbed"
)

func TestPercentilesAreRightToWithinOnePerCent(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		micros := rapid.SliceOfN(rapid.Int64Range(0, int64(time.Hour/time.Microsecond)), 1, 200).Draw(t, "microseconds")
		var h, one, other histogram
		for i, us := range micros {
			half := &one
			if i%2 == 1 {
				half = &other
			}
			half.add(time.Duration(us) * time.Microsecond)
		}
		h.merge(&one)
		h.merge(&other)
		slices.Sort(micros)
		for _, share := range []float64{0, 0.5, 0.9, 0.99, 0.999} {
			want := time.Duration(micros[int(share*float64(len(micros)))]) * time.Microsecond
			if got := h.percentile(share); got < want || float64(got) > float64(want)*1.01+1000 {
				t.Errorf("%v of %v is %s, want %s", share, micros, got, want)
			}
		}
		if want := time.Duration(micros[len(micros)-1]) * time.Microsecond; h.max != want || h.percentile(1) != want {
			t.Errorf("the longest is %s, want %s", h.max, want)
		}
	})
}

func quiet(int64) {}

func TestALoadCountsWhatWasAnswered(t *testing.T) {
	var mu sync.Mutex
	seen := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		mu.Lock()
		seen[string(body[:n])] = true
		status := http.StatusAccepted
		if len(seen)%10 == 0 {
			status = http.StatusConflict
		}
		mu.Unlock()
		w.WriteHeader(status)
	}))
	defer s.Close()
	l := load{url: s.URL, connections: 4, duration: 200 * time.Millisecond, body: func(i int64) []byte {
		return []byte{'a' + byte(i%26), byte(i >> 8), byte(i)}
	}}
	got, err := l.run(t.Context(), quiet)
	if err != nil || got.Requests < 10 || got.Errors != got.Statuses["409"] || got.Errors == 0 ||
		got.Statuses["202"]+got.Statuses["409"] != got.Requests || got.Unsent != 0 {
		t.Errorf("%+v %v", got, err)
	}
	s.Close()
	got, err = l.run(t.Context(), quiet)
	if err != nil || got.Requests == 0 || got.Statuses[noAnswer] != got.Requests || got.Errors != got.Requests {
		t.Errorf("nobody there: %+v %v", got, err)
	}
}

// One answer in the beginning takes long. Measured from when they were sent, all the
// others would be fast.
func TestAtARateAStandstillMakesSlowWhatWasDueMeanwhile(t *testing.T) {
	var first sync.Once
	s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		first.Do(func() { time.Sleep(400 * time.Millisecond) })
		w.WriteHeader(http.StatusAccepted)
	}))
	l := load{url: s, connections: 1, duration: time.Second, rate: 100, body: func(int64) []byte { return nil }}
	got, err := l.run(t.Context(), quiet)
	if err != nil || got.Requests+got.Unsent != 100 || got.Latency.P90 < 200 || got.Latency.Max < 400 {
		t.Errorf("%+v %v", got, err)
	}
}

func TestWhatIsDueAndNeverSentCountsAsWaiting(t *testing.T) {
	release := make(chan struct{})
	s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		w.WriteHeader(http.StatusAccepted)
	}))
	time.AfterFunc(400*time.Millisecond, func() { close(release) })
	l := load{url: s, connections: 1, duration: 300 * time.Millisecond, rate: 100, body: func(int64) []byte {
		return nil
	}}
	got, err := l.run(t.Context(), quiet)
	if err != nil || got.Requests != 1 || got.Unsent != 29 || got.Latency.P50 < 100 {
		t.Errorf("%+v %v", got, err)
	}
}
