package server_test

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// madeUp is a protocol of one call, which says who is calling.
type madeUp struct{}

func (madeUp) Timers() map[string]clock.Handler { return nil }

func (madeUp) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func (madeUp) Routes() []wire.Route {
	return []wire.Route{{
		Method: "GET", Path: "/made-up", Summary: "Say who is calling", Auth: wire.Agent, Rate: 3, Media: "text/plain",
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			_, err := io.WriteString(w, roster.From(r.Context()).Address+" in "+wire.Scope(r.Context()))
			return err
		},
	}}
}

func startMadeUp(t *testing.T, address string, settings map[string]string) *box {
	t.Helper()
	return start(t, address, settings, protocol.Protocol{
		Name: "made-up", Label: "Made up", Migrations: store.Migrations{Package: "made-up"},
		Projection: ledger.Projection{Name: "made-up"},
		Open:       func(context.Context, protocol.Core) (protocol.Service, error) { return madeUp{}, nil },
	})
}

// call calls, and checks the status.
func (b *box) call(want int, call, token, body string) (string, http.Header) {
	b.t.Helper()
	status, answer, header := b.do(request{call: call, token: token, body: body})
	if status != want {
		b.t.Errorf("%s: %d, want %d: %s", call, status, want, answer)
	}
	return answer, header
}

const madeUpCall = "GET /made-up"

func TestAnAgentThatAsksTooMuchHearsWhenToComeBack(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		b := startMadeUp(t, address, nil)
		busy, calm := b.Agent("busy"), b.Agent("calm")
		for i := range 3 {
			answer, header := b.call(200, madeUpCall, busy[[]string{"signal", "mail"}[i%2]], "")
			if answer != "busy@default.signalbox.local in default" || header.Get("X-RateLimit-Limit") != "3" ||
				header.Get("X-RateLimit-Remaining") != strconv.Itoa(2-i) {
				t.Errorf("call %d: %s %v", i+1, answer, header)
			}
		}
		answer, header := b.call(429, madeUpCall, busy["mail"], "")
		after, _ := strconv.Atoi(header.Get("Retry-After"))
		reset, _ := strconv.ParseInt(header.Get("X-RateLimit-Reset"), 10, 64)
		if wait := time.Until(time.Unix(reset, 0)); !strings.Contains(answer, `"error":"rate_limited"`) ||
			header.Get("X-RateLimit-Remaining") != "0" || after < 1 || after > 20 || wait < 30*time.Second ||
			wait > time.Minute {
			t.Errorf("%s %v", answer, header)
		}
		b.call(200, madeUpCall, calm["signal"], "")

		const agent = "/ops/agents/busy"
		b.call(200, "PATCH "+agent, b.token(), `{"rate_limit":1}`)
		if _, header := b.call(200, madeUpCall, busy["signal"], ""); header.Get("X-RateLimit-Limit") != "1" {
			t.Errorf("%v", header)
		}
		b.call(429, madeUpCall, busy["signal"], "")
		b.call(200, "PATCH "+agent, b.token(), `{"rate_limit":0}`)
		for range 10 {
			if _, header := b.call(200, madeUpCall, busy["signal"], ""); header.Get("X-RateLimit-Limit") != "" {
				t.Errorf("without a limit: %v", header)
			}
		}
		b.call(200, "PATCH "+agent, b.token(), `{"rate_limit":"default"}`)
		b.call(429, madeUpCall, busy["signal"], "")
		if answer, _ := b.call(200, "GET "+agent, b.token(), ""); !strings.Contains(answer,
			`"online":true,"last_seen_at":"20`) {
			t.Errorf("%s", answer)
		}
	})
}

func TestTheServersLimitComesBeforeTheRoutes(t *testing.T) {
	t.Parallel()
	b := startMadeUp(t, "", map[string]string{"limits.per_agent": "1", "mail.provider": "agents.example.com"})
	keys := b.Agent("caller")
	if answer, _ := b.call(200, madeUpCall, keys["signal"], ""); answer != "caller@default.agents.example.com in default" {
		t.Error(answer)
	}
	b.call(429, madeUpCall, keys["signal"], "")
}

func TestARouteForAgentsTakesAgentsOnly(t *testing.T) {
	t.Parallel()
	b := startMadeUp(t, "", nil)
	keys := b.Agent("caller")
	var owner struct{ Key string }
	b.ops(201, "POST /ops/owners", `{"name":"finance"}`, &owner)
	for _, c := range []struct {
		status      int
		token, says string
	}{
		{401, "", "Bearer rs-amp-"},
		{401, "rs-amp-nonsense", "not known here"},
		{403, b.token(), "key of an operator"},
		{403, owner.Key, "key of an owner"},
		{200, keys["mail"], "caller@"},
	} {
		if answer, _ := b.call(c.status, madeUpCall, c.token, ""); !strings.Contains(answer, c.says) {
			t.Errorf("%s: %s", c.token, answer)
		}
	}
	// Who is suspended is still known; what it does is for policy to block.
	b.call(200, "PATCH /ops/agents/caller", b.token(), `{"suspended":true}`)
	b.call(200, madeUpCall, keys["signal"], "")
}

func TestARouteForAgentsIsDescribedAsOne(t *testing.T) {
	t.Parallel()
	document, _ := startMadeUp(t, "", nil).call(200, "GET /openapi.json", "", "")
	for _, want := range []string{`"security":[{"agent":[]}]`, "3 such calls a minute", "amp_live_sk_"} {
		if !strings.Contains(document, want) {
			t.Errorf("the description lacks %s: %s", want, document)
		}
	}
}
