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

// carrier is one of those that are compared.
type carrier struct {
	name, url, key  string
	p50, rate, ttfb []float64
	errors          int64
}

const modelCall = `{"model":"claude-sonnet-4-6","max_tokens":1024,"stream":%t,"tools":[{"name":"bash","description":"Runs a command","input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],"system":"You are a careful engineer.","messages":[{"role":"user","content":"Rewrite the resume for a role at a bank, in plain words, and keep it to one page. %d"}]}`

// measure carries calls for a while: one connection, sixteen, and streams.
func (c *carrier) measure(ctx context.Context, each time.Duration) error {
	l := load{
		url: c.url + "/v1/proxy/v1/messages", key: c.key, connections: 1, duration: each,
		body: func(i int64) []byte {
			return fmt.Appendf(nil, modelCall, false, i)
		},
	}
	quiet := func(int64) {}
	got, err := l.run(ctx, quiet)
	if err != nil {
		return err
	}
	c.p50, c.errors = append(c.p50, got.Latency.P50), c.errors+got.Errors
	l.connections = 16
	if got, err = l.run(ctx, quiet); err != nil {
		return err
	}
	c.rate, c.errors = append(c.rate, got.PerSecond), c.errors+got.Errors
	times, err := c.firstBytes(ctx, l.url, each)
	if err != nil {
		return err
	}
	c.ttfb = append(c.ttfb, median(times))
	return nil
}

// firstBytes is how long streams take to begin, in milliseconds.
func (c *carrier) firstBytes(ctx context.Context, target string, each time.Duration) (times []float64, err error) {
	transport := &http.Transport{DisableCompression: true}
	defer transport.CloseIdleConnections()
	for began := time.Now(); time.Since(began) < each; {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, target,
			strings.NewReader(fmt.Sprintf(modelCall, true, len(times))))
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

func median(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

// row compares with the bare proxy in each round, and takes the median of the ratios.
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
	}
}
