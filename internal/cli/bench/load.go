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

// load describes calls on a server: by how many connections, for how long, and at which rate. It is
// passed by value and never changed by a run, so the same load can be put on two servers.
type load struct {
	url, key    string
	connections int
	duration    time.Duration
	// rate is how many calls are due in a second, whether or not earlier ones have been answered; with
	// 0 a connection sends its next call when the last one was answered.
	rate float64
	body func(i int64) []byte // of call number i; called concurrently
	// keyOf is the key of call number i, if not all calls are of one agent.
	keyOf func(i int64) string
	// dial opens a connection of another kind than HTTP POSTs. send makes a call and returns its status,
	// as read does.
	dial func(context.Context) (send func([]byte) string, hangUp func(), err error)
	// read makes a status of the body of a 200 answer; without it the status is the HTTP status.
	read func(body []byte) string
	// good reports whether a status is not an error; 200 and 202 are good if it is nil.
	good func(status string) bool
}

// Load is the result of one load. Statuses adds up to Requests; Latency also counts calls that were due and
// never sent.
type Load struct {
	Requests  int64            `json:"requests"`
	PerSecond float64          `json:"per_second"`
	Errors    int64            `json:"errors"`
	Statuses  map[string]int64 `json:"statuses"`         // how many of each; "no answer" is one
	Unsent    int64            `json:"unsent,omitempty"` // due, and no connection was free until the end
	Latency   Latency          `json:"latency_ms"`
}

// Latency is how long calls took, in milliseconds, by percentiles.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// caller is what one connection has measured. Only its own goroutine touches it until all have ended.
type caller struct {
	times    histogram
	statuses map[string]int64
}

// noAnswer is the status of a call without a complete answer.
const noAnswer = "no answer"

// run makes the calls and returns when the duration is over and every call has been answered. With a rate,
// a call is measured from when it was due: a server that stalls for a second has made all calls of
// that second slow, and not only those that were under way. progress is called four times a
// second with the number of calls that are done. The error is that of ctx.
func (l load) run(ctx context.Context, progress func(done int64)) (Load, error) {
	// As many connections as callers, kept open: opening one is not what is measured.
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, DisableCompression: true,
		MaxConnsPerHost: l.connections, MaxIdleConnsPerHost: l.connections, MaxIdleConns: l.connections,
	}
	defer transport.CloseIdleConnections()
	// Callers take numbers from one counter, so that with a rate the calls are due in order, whichever
	// connection is free.
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
				// Without a connection there is one failed call, not as many as the time allows.
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
	// Report progress until the last caller has ended.
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

// connect opens one connection. Over HTTP that is the transport's business, which has as many as there are
// callers.
func (l load) connect(ctx context.Context, transport http.RoundTripper) (send func(int64, []byte) string, hangUp func(),
	err error,
) {
	// Another transport has a connection per caller, and all of its calls the same key.
	if l.dial != nil {
		sendOne, hangUp, err := l.dial(ctx)
		return func(_ int64, body []byte) string { return sendOne(body) }, hangUp, err
	}
	return func(n int64, body []byte) string {
		key := l.key
		if l.keyOf != nil {
			key = l.keyOf(n)
		}
		return l.send(ctx, transport, key, body)
	}, func() {}, nil
}

// due waits until call number n is due, and returns that moment. It is false if the load is over. A call
// that is overdue is sent at once, with the moment when it should have been.
func (l load) due(ctx context.Context, n int64, began, end time.Time) (time.Time, bool) {
	due := time.Now()
	if l.rate > 0 {
		due = began.Add(l.after(n))
	}
	// The load is over for a call that is due after its end, and for any call once its time has passed:
	// a server that falls behind is not sent the backlog afterwards.
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

// after is when call number n is due, counted from the beginning of the load.
func (l load) after(n int64) time.Duration {
	return time.Duration(float64(n) / l.rate * float64(time.Second))
}

// send makes one call over HTTP, reads its answer and returns its status.
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
	// An answer that is not 200 is counted by its status, whatever its body says.
	if l.read != nil && res.StatusCode == http.StatusOK {
		text, err := io.ReadAll(res.Body)
		if err != nil {
			return noAnswer
		}
		return l.read(text)
	}
	// Reading to the end lets the connection be used again; an answer that breaks off is none.
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return noAnswer
	}
	return fmt.Sprint(res.StatusCode)
}

// sum adds up what the connections measured. Calls that were due and never sent count with the time that
// they have waited until now, which is less than they would have taken.
func (l load) sum(callers []caller, took time.Duration, began time.Time) Load {
	// Histograms are merged and not sorted: a load of an hour has millions of calls.
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
	// Ctrl-C ends a load early; then nothing is missing.
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
