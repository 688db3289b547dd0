package server

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// madeUpServer is a running server with one made-up route for agents beside its own.
type madeUpServer struct {
	t          *testing.T
	ops, url   string
	adminToken string
}

var madeUp = wire.Route{
	Method: "GET", Path: "/made-up", Summary: "Say who is calling", Auth: wire.Agent, Rate: 3, Media: "text/plain",
	Handle: func(w http.ResponseWriter, r *http.Request) error {
		_, err := io.WriteString(w, roster.From(r.Context()).Address+" in "+wire.Scope(r.Context()))
		return err
	},
}

func startProtocol(t *testing.T, address string, settings map[string]string) *madeUpServer {
	t.Helper()
	all := map[string]string{"data": t.TempDir(), "listen": "127.0.0.1:0"}
	if strings.HasPrefix(address, "postgres") {
		all["db"] = address
	}
	for k, v := range settings {
		all[k] = v
	}
	config, err := Load(all, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := New(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(*Server) { close(ready) }) }()
	web := httptest.NewServer(s.serve(madeUp))
	t.Cleanup(func() {
		web.Close()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(config.Data, TokenFile))
	if err != nil {
		t.Fatal(err)
	}
	return &madeUpServer{t, s.URL(), web.URL, strings.TrimSpace(string(token))}
}

// call calls, and checks the status.
func (p *madeUpServer) call(want int, method, url, token, body string) (string, http.Header) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != want {
		p.t.Errorf("%s %s: %d, want %d: %s %v", method, url, res.StatusCode, want, answer, err)
	}
	return string(answer), res.Header
}

// add adds an agent and returns its keys by kind.
func (p *madeUpServer) add(name string) map[string]string {
	p.t.Helper()
	answer, _ := p.call(201, "POST", p.ops+"/ops/agents", p.adminToken, `{"name":"`+name+`"}`)
	var added struct {
		Keys map[string]string `json:"keys"`
	}
	if err := json.Unmarshal([]byte(answer), &added); err != nil {
		p.t.Fatal(err)
	}
	return added.Keys
}

func TestAnAgentThatAsksTooMuchHearsWhenToComeBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		p := startProtocol(t, address, nil)
		busy, calm := p.add("busy"), p.add("calm")
		for i := range 3 {
			answer, header := p.call(200, "GET", p.url, busy[[]string{"signal", "mail"}[i%2]], "")
			if answer != "busy@default.signalbox.local in default" || header.Get("X-RateLimit-Limit") != "3" || header.Get("X-RateLimit-Remaining") != strconv.Itoa(2-i) {
				t.Errorf("call %d: %s %v", i+1, answer, header)
			}
		}
		answer, header := p.call(429, "GET", p.url, busy["mail"], "")
		after, _ := strconv.Atoi(header.Get("Retry-After"))
		reset, _ := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64)
		if wait := time.Until(time.Unix(reset, 0)); !strings.Contains(answer, `"error":"rate_limited"`) || header.Get("X-RateLimit-Remaining") != "0" || after < 1 || after > 20 || wait < 30*time.Second || wait > time.Minute {
			t.Errorf("%s %v", answer, header)
		}
		p.call(200, "GET", p.url, calm["signal"], "")

		agent := p.ops + "/ops/agents/busy"
		p.call(200, "PATCH", agent, p.adminToken, `{"rate_limit":1}`)
		if _, header := p.call(200, "GET", p.url, busy["signal"], ""); header.Get("X-RateLimit-Limit") != "1" {
			t.Errorf("%v", header)
		}
		p.call(429, "GET", p.url, busy["signal"], "")
		p.call(200, "PATCH", agent, p.adminToken, `{"rate_limit":0}`)
		for range 10 {
			if _, header := p.call(200, "GET", p.url, busy["signal"], ""); header.Get("X-RateLimit-Limit") != "" {
				t.Errorf("without a limit: %v", header)
			}
		}
		p.call(200, "PATCH", agent, p.adminToken, `{"rate_limit":"default"}`)
		p.call(429, "GET", p.url, busy["signal"], "")
		if answer, _ := p.call(200, "GET", agent, p.adminToken, ""); !strings.Contains(answer, `"online":true,"last_seen_at":"20`) {
			t.Errorf("%s", answer)
		}
	})
}

func TestTheServersLimitComesBeforeTheRoutes(t *testing.T) {
	t.Parallel()
	p := startProtocol(t, "", map[string]string{"limits.per_agent": "1", "mail.provider": "agents.example.com"})
	keys := p.add("caller")
	if answer, _ := p.call(200, "GET", p.url, keys["signal"], ""); answer != "caller@default.agents.example.com in default" {
		t.Error(answer)
	}
	p.call(429, "GET", p.url, keys["signal"], "")
}

func TestARouteForAgentsTakesAgentsOnly(t *testing.T) {
	t.Parallel()
	p := startProtocol(t, "", nil)
	keys := p.add("caller")
	answer, _ := p.call(201, "POST", p.ops+"/ops/owners", p.adminToken, `{"name":"finance"}`)
	var owner struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal([]byte(answer), &owner); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		status      int
		token, says string
	}{
		{401, "", "Bearer rs-amp-"},
		{401, "rs-amp-nonsense", "not known here"},
		{403, p.adminToken, "key of an operator"},
		{403, owner.Key, "key of an owner"},
		{200, keys["mail"], "caller@"},
	} {
		if answer, _ := p.call(c.status, "GET", p.url, c.token, ""); !strings.Contains(answer, c.says) {
			t.Errorf("%s: %s", c.token, answer)
		}
	}
	// Who is suspended is still known; what it does is for policy to block.
	p.call(200, "PATCH", p.ops+"/ops/agents/caller", p.adminToken, `{"suspended":true}`)
	p.call(200, "GET", p.url, keys["signal"], "")
}

func TestARouteForAgentsIsDescribedAsOne(t *testing.T) {
	t.Parallel()
	document := string(openAPI([]wire.Route{madeUp}))
	for _, want := range []string{`"security":[{"agent":[]}]`, "3 such calls a minute", "amp_live_sk_"} {
		if !strings.Contains(document, want) {
			t.Errorf("the description lacks %s: %s", want, document)
		}
	}
}
