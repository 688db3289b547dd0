package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// load is calls on a server, by a number of connections for a time.
type load struct {
	url, key    string
	connections int
	duration    time.Duration
	// rate is how many calls are due in a second, whether or not those before them have
	// been answered; 0 is the next as soon as one was answered.
	rate float64
	body func(i int64) []byte
	// keyOf is the key of a call, where they are not all of one agent.
	keyOf func(i int64) string
	// dial makes a connection of another kind than HTTP. send says how a call came out.
	dial func(context.Context) (send func([]byte) string, hangUp func(), err error)
	// read says how a call over HTTP came out, of a good answer's body; nil for its status.
	read func(body []byte) string
	// good tells which outcomes are no errors; 200 and 202 when it is nil.
	good func(status string) bool
}

// Load is how calls came out.
type Load struct {
	Requests  int64            `json:"requests"`
	PerSecond float64          `json:"per_second"`
	Errors    int64            `json:"errors"`
	Statuses  map[string]int64 `json:"statuses"`         // how many of each; "no answer" is one
	Unsent    int64            `json:"unsent,omitempty"` // were due and found no connection free
	Latency   Latency          `json:"latency_ms"`
}

// Latency is in milliseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// caller is one connection's part of a load.
type caller struct {
	times    histogram
	statuses map[string]int64
}

const noAnswer = "no answer"

// run makes the calls. A call that was due is measured from when it was due: a server
// that stands still makes all of those slow that should have come meanwhile, and not
// only the ones that were under way.
func (l load) run(ctx context.Context, progress func(done int64)) (Load, error) {
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true,
		MaxConnsPerHost: l.connections, MaxIdleConnsPerHost: l.connections, MaxIdleConns: l.connections,
	}
	defer transport.CloseIdleConnections()
	var next, done atomic.Int64
	callers := make([]caller, l.connections)
	began := time.Now()
	end := began.Add(l.duration)
	var working sync.WaitGroup
	for i := range callers {
		c := &callers[i]
		c.statuses = map[string]int64{}
		working.Go(func() {
			send, hangUp, err := l.connect(ctx, transport)
			if err != nil {
				c.statuses[noAnswer]++
				c.times.add(time.Since(began))
				return
			}
			defer hangUp()
			for {
				n := next.Add(1) - 1
				due, ok := l.due(ctx, n, began, end)
				if !ok {
					return
				}
				c.statuses[send(n, l.body(n))]++
				c.times.add(time.Since(due))
				done.Add(1)
			}
		})
	}
	ended := make(chan struct{})
	go func() { working.Wait(); close(ended) }()
	for tick := time.NewTicker(250 * time.Millisecond); ; {
		select {
		case <-tick.C:
			progress(done.Load())
			continue
		case <-ended:
			tick.Stop()
		}
		break
	}
	return l.sum(callers, time.Since(began), began), ctx.Err()
}

// connect is one connection.
func (l load) connect(ctx context.Context, transport http.RoundTripper) (send func(int64, []byte) string, hangUp func(),
	err error,
) {
	if l.dial != nil {
		say, hangUp, err := l.dial(ctx)
		return func(_ int64, body []byte) string { return say(body) }, hangUp, err
	}
	return func(n int64, body []byte) string {
		key := l.key
		if l.keyOf != nil {
			key = l.keyOf(n)
		}
		return l.send(ctx, transport, key, body)
	}, func() {}, nil
}

// due waits until the call with the number is due. It is false when the time is over.
func (l load) due(ctx context.Context, n int64, began, end time.Time) (time.Time, bool) {
	due := time.Now()
	if l.rate > 0 {
		due = began.Add(l.after(n))
	}
	wait := time.Until(due)
	if wait <= 0 || !due.Before(end) {
		return due, ctx.Err() == nil && due.Before(end) && time.Now().Before(end)
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
	}
	return due, ctx.Err() == nil
}

// after is when the call with the number is due, from the beginning.
func (l load) after(n int64) time.Duration {
	return time.Duration(float64(n) / l.rate * float64(time.Second))
}

// send makes a call and reads its answer.
func (l load) send(ctx context.Context, transport http.RoundTripper, key string, body []byte) string {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, l.url, bytes.NewReader(body))
	if err != nil {
		return noAnswer
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+key)
	res, err := transport.RoundTrip(req)
	if err != nil {
		return noAnswer
	}
	defer func() { _ = res.Body.Close() }()
	if l.read != nil && res.StatusCode == http.StatusOK {
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return noAnswer
		}
		return l.read(text)
	}
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return noAnswer
	}
	return fmt.Sprint(res.StatusCode)
}

// sum adds up what the connections saw. Calls that were due and were never sent count
// with the time that they have waited at least.
func (l load) sum(callers []caller, took time.Duration, began time.Time) Load {
	var times histogram
	out := Load{Statuses: map[string]int64{}}
	for i := range callers {
		times.merge(&callers[i].times)
		for status, n := range callers[i].statuses {
			out.Statuses[status] += n
		}
	}
	good := l.good
	if good == nil {
		good = func(status string) bool { return status == "200" || status == "202" }
	}
	for status, n := range maps.All(out.Statuses) {
		if !good(status) {
			out.Errors += n
		}
	}
	out.Requests, out.PerSecond = times.total, float64(times.total)/took.Seconds()
	if all := int64(l.rate * l.duration.Seconds()); l.rate > 0 && took >= l.duration {
		for n := times.total; n < all; n++ {
			out.Unsent++
			times.add(time.Since(began) - l.after(n))
		}
	}
	ms := func(share float64) float64 { return float64(times.percentile(share).Microseconds()) / 1000 }
	out.Latency = Latency{ms(0.5), ms(0.9), ms(0.99), ms(0.999), float64(times.max.Microseconds()) / 1000}
	return out
}
