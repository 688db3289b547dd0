package proxy_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/facts"
	"signalbox/internal/policy"
	"signalbox/internal/proxy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
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

// least is the least server that does what a proxy of this kind has to: it reads request and reply as JSON, looks at the
// commands in the reply, takes a digest, and notes the call. It has no agents, keys, rules, prices, limits or ledger.
func least(provider string) http.Handler {
	transport := &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true}
	noted := make(chan [32]byte, 1024)
	go func() { // as records are written, apart from the call
		for range noted {
		}
	}()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked, err := io.ReadAll(r.Body)
		if _, bad := wire.Data(asked); err != nil || bad != nil {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		noted <- sha256.Sum256(asked)
		out, _ := http.NewRequestWithContext(r.Context(), r.Method, provider+strings.TrimPrefix(r.URL.Path, "/v1/proxy"),
			bytes.NewReader(asked))
		out.Header = r.Header.Clone()
		res, err := transport.RoundTrip(out)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		defer func() { _ = res.Body.Close() }()
		reply, _ := io.ReadAll(res.Body)
		_, calls, err := form.Messages.Reply(reply)
		for _, c := range calls {
			if facts.Of(facts.Call{Tool: c.Tool, Arguments: c.Object}).Opaque != nil {
				err = http.ErrNotSupported
			}
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		maps.Copy(w.Header(), res.Header)
		_, _ = w.Write(reply)
	})
}

// BenchmarkCarry compares calls through the proxy with those through a bare reverse proxy, and through the least server
// that could take its place: how many in a second, in turns.
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
	lean := testbed.ServeHTTP(b, least(n.provider.URL))
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
			all := []struct{ name, url string }{{"bare", bare}, {"ours", n.web.URL}, {"least", lean}}
			rates, took := make([]float64, len(all)), make([]time.Duration, len(all))
			for b.Loop() {
				for i, one := range all {
					begin := testbed.ProcessorTime()
					rates[i] += rate(one.url, c.question, c.connections, 1600)
					took[i] += testbed.ProcessorTime() - begin
				}
			}
			for i, one := range all {
				b.ReportMetric(rates[i]/float64(b.N), one.name+"/s")
				// What the processor did, with the client and the provider: other load does not change it as much.
				b.ReportMetric(float64(took[i].Microseconds())/float64(b.N*1600), one.name+"-µs")
			}
			b.ReportMetric(rates[0]/rates[1], "times")
			b.ReportMetric(rates[0]/rates[2], "least-times")
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

// memory is a provider in this process, without a socket: what it answers is at hand.
type memory struct{ reply []byte }

func (m *memory) RoundTrip(r *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, r.Body)
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(m.reply)),
		Header: http.Header{
			"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(m.reply))}, "Request-Id": {"req_1"},
		},
		Body: io.NopCloser(bytes.NewReader(m.reply)),
	}, nil
}

// client takes an answer and throws it away.
type client struct {
	header http.Header
	status int
}

func (c *client) Header() http.Header              { return c.header }
func (c *client) WriteHeader(status int)           { c.status = status }
func (c *client) Write(b []byte) (int, error)      { return len(b), nil }
func (c *client) Flush()                           {}
func (c *client) SetReadDeadline(time.Time) error  { return nil }
func (c *client) SetWriteDeadline(time.Time) error { return nil }
func (c *client) EnableFullDuplex() error          { return nil }
func (c *client) reset()                           { clear(c.header); c.status = 0 }

// BenchmarkHandle is what the proxy itself does for a call: request and reply are in memory, and no socket is used.
func BenchmarkHandle(b *testing.B) {
	n := start(b, storetest.SQLite(b), func(o *proxy.Options) { o.Upstreams[proxy.Anthropic] = "memory://provider" })
	text := strings.Replace(string(policy.Default()), "rules:\n", "rules:\n"+tenRules(), 1)
	if _, _, err := n.Book.Apply(b.Context(), roster.Identity{}, []byte(text), 0); err != nil {
		b.Fatal(err)
	}
	provider := &memory{}
	n.proxy.Reach("memory", provider)
	for _, c := range []struct{ name, content string }{
		{"plain", `{"type":"text","text":"` + strings.Repeat("Some words of an answer. ", 20) + `"}`},
		{"tool", `{"type":"text","text":"I will look."},{"type":"tool_use","id":"toolu_1","name":"bash","input":{"command":"ls -la src"}}`},
	} {
		b.Run(c.name, func(b *testing.B) {
			provider.reply = fmt.Appendf(nil, `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-6",`+
				`"content":[%s],"stop_reason":"end_turn","stop_sequence":null,"usage":{"input_tokens":100,"output_tokens":100}}`, c.content)
			b.ReportAllocs()
			w := &client{header: http.Header{}}
			for i := 0; b.Loop(); i++ {
				w.reset()
				r, _ := http.NewRequestWithContext(b.Context(), http.MethodPost, messagesPath, strings.NewReader(fmt.Sprintf(modelAsk, i)))
				r.Header.Set("X-Api-Key", n.key)
				r.Header.Set("Content-Type", "application/json")
				r.Header.Set("Accept-Encoding", "gzip")
				r.RemoteAddr = "127.0.0.1:1"
				n.web.Config.Handler.ServeHTTP(w, r)
				if w.status != http.StatusOK {
					b.Fatal(w.status)
				}
			}
		})
	}
}

// modelAsk is a request as agents send it; the number makes each another.
const modelAsk = `{"model":"claude-sonnet-4-6","max_tokens":1024,"stream":false,` +
	`"tools":[{"name":"bash","description":"Runs a command",` +
	`"input_schema":{"type":"object","properties":{"command":{"type":"string"}}}}],` +
	`"system":"You are a careful engineer.","messages":[{"role":"user","content":` +
	`"Rewrite the resume for a role at a bank, in plain words, and keep it to one page. %d"}]}`
