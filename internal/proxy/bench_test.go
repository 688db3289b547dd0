package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// tenRules are at the points of the proxy, and match nothing.
func tenRules() (rules string) {
	for i := range 5 {
		rules += fmt.Sprintf("  - {name: prompt-%d, on: [prompt], when: 'event.model == \"model-%d\" || "+
			"\"tool-%d\" in event.tools', then: block}\n", i, i, i)
		rules += fmt.Sprintf("  - {name: tool-%d, on: [tool_call], when: 'event.tool == \"tool-%d\" && "+
			"event.command.contains(\"rm\")', then: gate}\n", i, i)
	}
	return rules
}

// BenchmarkCarry compares calls through the proxy with those through a bare reverse proxy:
// how many in a second with 16 connections, in turns.
func BenchmarkCarry(b *testing.B) {
	n := start(b, storetest.SQLite(b))
	text := strings.Replace(string(policy.Default()), "rules:\n", "rules:\n"+tenRules(), 1)
	if _, _, err := n.Book.Apply(b.Context(), roster.Identity{}, []byte(text), 0); err != nil {
		b.Fatal(err)
	}
	n.provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		if bytes.Contains(body, []byte("List")) {
			_, _ = io.WriteString(w, strings.ReplaceAll(formCases[0].reply, "rm -r build", "ls -la src"))
			return
		}
		_, _ = io.WriteString(
			w, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6","content":[{"type":"text",`+
				`"text":"`+strings.Repeat("Some words. ", 40)+`"}],"stop_reason":"end_turn","usage":{"input_tokens":100,`+
				`"output_tokens":40}}`,
		)
	})
	to, err := url.Parse(n.provider.URL)
	if err != nil {
		b.Fatal(err)
	}
	bare := testbed.ServeHTTP(b, &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/v1/proxy")
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	rate := func(base, question string, connections, calls int) float64 {
		began := time.Now()
		var wg sync.WaitGroup
		for c := range connections {
			wg.Go(func() {
				for i := range calls / connections {
					r, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, base+messagesPath,
						strings.NewReader(strings.Replace(fmt.Sprintf(messageAsk, false), "Clean up", fmt.Sprint(question, c, i), 1)))
					r.Header.Set("X-Api-Key", n.key)
					res, err := transport.RoundTrip(r)
					if err != nil || res.StatusCode != http.StatusOK {
						b.Error(err, res)
						return
					}
					_, _ = io.Copy(io.Discard, res.Body)
					_ = res.Body.Close()
				}
			})
		}
		wg.Wait()
		return float64(calls) / time.Since(began).Seconds()
	}
	for _, c := range []struct {
		name, question string
		connections    int
	}{{"1", "Clean up ", 1}, {"16", "Clean up ", 16}, {"tools-1", "List ", 1}, {"tools-16", "List ", 16}} {
		b.Run(c.name, func(b *testing.B) {
			var ours, theirs float64
			var oursUsed, theirsUsed time.Duration
			for b.Loop() {
				begin := testbed.ProcessorTime()
				theirs += rate(bare, c.question, c.connections, 1600)
				between := testbed.ProcessorTime()
				ours += rate(n.web.URL, c.question, c.connections, 1600)
				oursUsed, theirsUsed = oursUsed+testbed.ProcessorTime()-between, theirsUsed+between-begin
			}
			b.ReportMetric(ours/float64(b.N), "ours/s")
			b.ReportMetric(theirs/float64(b.N), "bare/s")
			b.ReportMetric(theirs/ours, "times")
			// What the processor did, with the client and the provider: other load does not change it as much.
			b.ReportMetric(float64(oursUsed.Microseconds())/float64(b.N*1600), "ours-µs")
			b.ReportMetric(float64(theirsUsed.Microseconds())/float64(b.N*1600), "bare-µs")
		})
	}
}

// BenchmarkHeld holds 2,000 calls at once, on bare connections, and reports what each takes
// of the memory.
func BenchmarkHeld(b *testing.B) {
	n := start(b, storetest.SQLite(b), func(o *proxy.Options) {
		o.Attempt, o.Hold = time.Hour, time.Hour
	})
	n.apply(gateBash)
	n.provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, formCases[0].reply)
	})
	const calls = 2000
	memory := func() float64 {
		for range 5 { // each halves stacks that have become small
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse + m.StackInuse)
	}
	for b.Loop() {
		before := memory()
		var conns []net.Conn
		for i := range calls {
			c, err := (&net.Dialer{}).DialContext(b.Context(), "tcp", n.web.Listener.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			conns = append(conns, c)
			body := strings.Replace(fmt.Sprintf(messageAsk, false), "Clean up", fmt.Sprint("Clean up ", i), 1)
			_, _ = fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nX-Api-Key: %s\r\nContent-Length: %d\r\n\r\n%s", messagesPath,
				n.key, len(body), body)
		}
		testbed.Until(b, "all calls to wait", func() bool {
			var waiting int
			err := n.DB.Read.QueryRowContext(b.Context(), "SELECT COUNT(*) FROM gate_approval").Scan(&waiting)
			return err == nil && waiting >= calls
		})
		n.provider.CloseClientConnections()
		// Until each is held, and what passed was written.
		time.Sleep(500 * time.Millisecond)
		// With the client's side, and what the ledger keeps of the newest entries.
		b.ReportMetric((memory()-before)/calls/1024, "KB/call")
		for _, c := range conns {
			_ = c.Close()
		}
	}
}
