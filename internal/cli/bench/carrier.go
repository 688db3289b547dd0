package bench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// carrier is one of the proxies that are compared: the bare one, nginx or ours. Its lists have one value
// per round, so that values of the same round can be compared with each other.
type carrier struct {
	name, url, key  string
	p50, rate, ttfb []float64 // milliseconds, calls a second, milliseconds to the first byte
	// The same of calls whose reply has a tool call, which is judged.
	toolP50, toolRate []float64
	errors            int64
}

// modelCall is a call as an agent makes it: a tool, a system prompt and a question. The number makes each
// call another, since our proxy knows repetitions by their bytes.
const modelCall = `{"model":"claude-sonnet-4-6","max_tokens":1024,"stream":%t,` +
	`"tools":[{"name":"bash","description":"Runs a command",` +
	`"input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],` +
	`"system":"You are a careful engineer.","messages":[{"role":"user","content":` +
	`"%s %d"}]}`

// The questions. To the second, the stand-in answers with a tool call.
const (
	plainQuestion = "Rewrite the resume for a role at a bank, in plain words, and keep it to one page."
	toolQuestion  = "List the files of the project."
)

// measurements is how many a round has.
const measurements = 5

// measure makes one round: latency with one connection and throughput with sixteen, of plain replies and of those with a
// tool call, and the first byte of streams, each for the given time.
func (c *carrier) measure(ctx context.Context, each time.Duration) error {
	target := c.url + "/v1/proxy/v1/messages"
	for _, kind := range []struct {
		question  string
		p50, rate *[]float64
	}{{plainQuestion, &c.p50, &c.rate}, {toolQuestion, &c.toolP50, &c.toolRate}} {
		l := load{
			url: target, key: c.key, connections: 1, duration: each,
			body: func(i int64) []byte { return fmt.Appendf(nil, modelCall, false, kind.question, i) },
		}
		// Progress is printed per round, and not here.
		quiet := func(int64) {}
		got, err := l.run(ctx, quiet)
		if err != nil {
			return err
		}
		*kind.p50, c.errors = append(*kind.p50, got.Latency.P50), c.errors+got.Errors
		l.connections = 16
		// The same load again, now for its throughput.
		if got, err = l.run(ctx, quiet); err != nil {
			return err
		}
		*kind.rate, c.errors = append(*kind.rate, got.PerSecond), c.errors+got.Errors
	}
	times, err := c.firstBytes(ctx, target, each)
	if err != nil {
		return err
	}
	c.ttfb = append(c.ttfb, median(times))
	return nil
}

// firstBytes opens streams one after another and returns how long each took until its first byte of the
// body, in milliseconds. Each stream is read to its end, so that the connection is used again.
func (c *carrier) firstBytes(ctx context.Context, target string, each time.Duration) (times []float64, err error) {
	// RoundTrip and not a Client: no redirects, no cookies, nothing but the call.
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	for began := time.Now(); time.Since(began) < each; {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target,
			strings.NewReader(fmt.Sprintf(modelCall, true, plainQuestion, len(times))))
		if err != nil {
			return nil, err
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Api-Key", c.key)
		sent := time.Now()
		res, err := transport.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		// Headers may be early; the first byte of the body is what a user waits for.
		one := make([]byte, 1)
		_, err = io.ReadFull(res.Body, one)
		took := time.Since(sent)
		if _, copied := io.Copy(io.Discard, res.Body); err != nil || copied != nil || res.StatusCode != http.StatusOK {
			c.errors++
		}
		_ = res.Body.Close()
		times = append(times, float64(took.Microseconds())/1000)
	}
	return times, nil
}

// median is the upper median of a list, 0 of an empty one. The list is not changed.
func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// row is the carrier's line of the report. It compares with the bare proxy within each round and takes the
// median of those ratios: what else the machine did in a round has slowed both.
func (c *carrier) row(bare *carrier) ProxyRow {
	ratios := func(a, b []float64) float64 {
		var all []float64
		for i := range a {
			all = append(all, a[i]/b[i])
		}
		return median(all)
	}
	return ProxyRow{
		Name: c.name, P50: median(c.p50), PerSecond: median(c.rate), FirstByte: median(c.ttfb), Errors: c.errors,
		P50Ratio: ratios(c.p50, bare.p50), SecondRatio: ratios(bare.rate, c.rate), FirstRatio: ratios(c.ttfb, bare.ttfb),
		ToolP50: median(c.toolP50), ToolPerSecond: median(c.toolRate),
		ToolP50Ratio: ratios(c.toolP50, bare.toolP50), ToolSecondRatio: ratios(bare.toolRate, c.toolRate),
	}
}
