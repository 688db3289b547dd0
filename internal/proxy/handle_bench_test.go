package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/proxy"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
)

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
