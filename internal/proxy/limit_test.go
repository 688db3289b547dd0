package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/proxy"
	"signalbox/internal/testbed"
)

// generated is a body of so many bytes that nobody holds.
type generated struct {
	left  int64
	begin string // after which there are spaces
	end   string
}

var spaces = strings.Repeat(" ", 64<<10)

func (g *generated) Read(b []byte) (int, error) {
	if g.begin != "" {
		n := copy(b, g.begin)
		g.begin = g.begin[n:]
		g.left -= int64(n)
		return n, nil
	}
	if g.left <= 0 {
		return 0, io.EOF
	}
	from := spaces
	if blank := g.left - int64(len(g.end)); blank > 0 {
		from = from[:min(blank, int64(len(from)))]
	} else {
		from = g.end[-blank:]
	}
	n := copy(b, from)
	g.left -= int64(n)
	return n, nil
}

// A request may be as large as the provider takes it. What nobody judges goes through, and
// is never held.
func TestRequestsMayBeAsLargeAsTheProviderTakesThem(t *testing.T) {
	n := start(t, t.TempDir()+"/a.db") // not beside others: it looks at the memory
	n.apply("  - {name: calls, on: [tool_call], then: gate}\n")
	var got, largest atomic.Int64
	n.provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.Store(0)
		buf := make([]byte, 1<<20)
		for {
			k, err := r.Body.Read(buf)
			if now := got.Add(int64(k)); now>>26 != (now-int64(k))>>26 { // every 64 MB
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				largest.Store(max(largest.Load(), int64(m.HeapAlloc)))
			}
			if err != nil {
				break
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"id":"file_1"}`)
	})
	send := func(path string, size int64, known bool, begin, end string) answer {
		r := n.request("POST", path, "")
		r.Body, r.ContentLength = io.NopCloser(&generated{size, begin, end}), -1
		if known {
			r.ContentLength = size
		}
		return n.do(r)
	}
	var before runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for _, c := range []struct {
		path, begin, end string
		most             int64
	}{
		{"/v1/proxy/v1/files", "", "", 500 << 20},
		{"/v1/proxy/openai/v1/files", "", "", 500 << 20},
		{messagesPath + "/batches", `{"requests":[`, `]}`, 256 << 20},
		{messagesPath + "/count_tokens", `{"model":"m"`, `}`, 32 << 20},
	} {
		size := c.most
		if c.path == "/v1/proxy/openai/v1/files" {
			size = 1 << 20 // once is enough
		}
		if a := send(c.path, size, size == c.most, c.begin, c.end); a.status != 200 || got.Load() != size {
			t.Errorf("%s: %d of %d bytes, %+v", c.path, got.Load(), size, a)
		}
		if a := send(c.path, c.most+1, true, c.begin, c.end); a.err == nil &&
			(a.status != 413 || !strings.Contains(a.body, "request_too_large")) {
			t.Errorf("%s: one more byte: %+v", c.path, a)
		}
	}
	// Without a length it is found out on the way, and the provider never has it whole.
	if a := send(messagesPath+"/count_tokens", 33<<20, false, "", ""); a.err == nil && a.status != 413 ||
		got.Load() > 32<<20 {
		t.Errorf("%d bytes, %+v", got.Load(), a)
	}
	if grown := largest.Load() - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("the heap has grown by %d MB", grown>>20)
	}
}

// A batch that rules look at is read before it is sent.
func TestALargeBatchIsJudged(t *testing.T) {
	n := one(t)
	n.apply("  - {name: no-opus, on: [prompt], when: 'event.model == \"opus\"', then: block}\n")
	n.provider.json(`{"id":"batch_1"}`)
	calls := strings.Repeat(`{"custom_id":"a","params":{"model":"sonnet","messages":[{"role":"user","content":"`+
		strings.Repeat("x", 1000)+`"}]}},`, 2000)
	for model, want := range map[string]int{"sonnet": 200, "opus": 403} {
		if got := n.call("POST", messagesPath+"/batches",
			`{"requests":[`+calls+`{"params":{"model":"`+model+`"}}]}`); got.status != want {
			t.Errorf("%s: %d %.200s", model, got.status, got.body)
		}
	}
}

// A provider that says nothing any more is left, and what it has said is no whole reply.
func TestAProviderThatStallsIsLeft(t *testing.T) {
	n := one(t, func(o *proxy.Options) { o.Idle = 150 * time.Millisecond })
	stall := func(status int, media, length string, said ...string) {
		n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
			if media != "" {
				w.Header().Set("Content-Type", media)
				if length != "" {
					w.Header().Set("Content-Length", length)
				}
				w.WriteHeader(status)
				_, _ = io.WriteString(w, strings.Join(said, ""))
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		})
	}
	// A machine may be too busy for a provider that has begun to be heard in time; it is asked again.
	begun := func(path, ask string) (got answer) {
		for range 20 {
			if got = n.call("POST", path, ask); !strings.Contains(got.body, "awaiting response headers") {
				break
			}
		}
		return got
	}
	for _, rules := range []string{"", gateBash} {
		n.apply(rules)
		for _, c := range formCases {
			stall(0, "", "")
			if got := n.call("POST", c.path, fmt.Sprintf(c.ask, false)); got.status != 502 ||
				!strings.Contains(got.body, "api_error") {
				t.Errorf("%s, no status: %+v", c.name, got)
			}
			stall(200, "application/json", "", c.reply[:40])
			if got := begun(c.path, fmt.Sprintf(c.ask, false)); got.status != 502 ||
				!strings.Contains(got.body, "for too long") {
				t.Errorf("%s, within a reply: %+v", c.name, got)
			}
			stall(200, "text/event-stream", "", c.stream("bash", removeAll)[:4]...)
			got := begun(c.path, fmt.Sprintf(c.ask, true))
			if got.err != nil || endsWell(c.name, got.body) || !strings.Contains(got.body, "for too long") ||
				rules != "" && strings.Contains(got.body, `"bash"`) {
				t.Errorf("%s, within a stream: %+v", c.name, got)
			}
		}
		// What is only carried breaks off as it does at the provider.
		stall(200, "application/json", "1000", `{"data":[`)
		if got := n.call("GET", "/v1/proxy/v1/models", ""); got.err == nil {
			t.Errorf("%+v", got)
		}
	}
	if gates := n.Entries("gate.opened"); len(gates) != 0 {
		t.Errorf("%d gates were opened for calls that are not whole", len(gates))
	}
}

// A provider may begin to answer before it has all of a request.
func TestAReplyMayBeginBeforeTheRequestHasEnded(t *testing.T) {
	n := one(t)
	n.provider.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).EnableFullDuplex()
		_, _ = io.WriteString(w, "begun ")
		_ = http.NewResponseController(w).Flush()
		size, err := io.Copy(io.Discard, r.Body)
		_, _ = fmt.Fprintf(w, "%d %v", size, err)
	})
	ctx, cancel := context.WithTimeout(t.Context(), testbed.Patience)
	defer cancel()
	r := n.request("POST", "/v1/proxy/v1/files", "").WithContext(ctx)
	body, feed := io.Pipe()
	r.Body, r.ContentLength = body, 2<<20
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	go func() {
		_, _ = io.Copy(feed, &generated{left: 2 << 20})
		_ = feed.Close()
	}()
	if text, err := io.ReadAll(res.Body); err != nil || string(text) != fmt.Sprintf("begun %d <nil>", 2<<20) {
		t.Errorf("%q %v", text, err)
	}
}

// A redirect would take the key, and the call, past us.
func TestARedirectIsNeitherFollowedNorPassedOn(t *testing.T) {
	n := one(t)
	n.provider.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/elsewhere" {
			t.Error("the redirect was followed")
		}
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	})
	for _, call := range []string{
		"POST " + messagesPath, "POST " + chatPath, "GET /v1/proxy/v1/models",
		"POST " + messagesPath + "/batches",
	} {
		method, path, _ := strings.Cut(call, " ")
		if got := n.call(method, path, `{"model":"m"}`); got.status != 502 || got.header.Get("Location") != "" ||
			!strings.Contains(got.body, "redirect") {
			t.Errorf("%s: %+v", call, got)
		}
	}
}
