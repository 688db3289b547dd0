package roster_test

import (
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

func TestALimitIsTheAgentsWhicheverKeyItUses(t *testing.T) {
	t.Parallel()
	r, admin, c := start(t, storetest.SQLite(t))
	_, keys, err := r.AddAgent(t.Context(), admin, roster.NewAgent{Name: "busy"})
	if err != nil {
		t.Fatal(err)
	}
	_, other := add(t, r, admin, roster.NewAgent{Name: "calm"})
	take := func(secret, what string) (roster.Allowance, error) {
		return r.Take(identify(t, r, secret), what, 3)
	}
	for i := range 3 {
		a, err := take(keys[i%2].Secret, "requests")
		if err != nil || a.Limit != 3 || a.Remaining != 2-i || !a.Reset.After(c.Now()) ||
			a.Reset.After(c.Now().Add(time.Minute)) {
			t.Errorf("call %d: %+v %v", i+1, a, err)
		}
	}
	a, err := take(keys[1].Secret, "requests")
	if !fault.Is(err, fault.RateLimited) || a.Remaining != 0 ||
		!strings.Contains(err.Error(), "busy has used up its 3 requests a minute") {
		t.Errorf("a call too many: %+v %v", a, err)
	}
	if wait := fault.From(err).Details[wire.RetryAfter].(int); wait < 1 || wait > 20 {
		t.Errorf("it should come back in %d seconds", wait)
	}
	if _, err := take(other, "requests"); err != nil {
		t.Errorf("another agent: %v", err)
	}
	if _, err := take(keys[0].Secret, "messages"); err != nil {
		t.Errorf("something else: %v", err)
	}
	c.Move(20 * time.Second)
	if _, err := take(keys[0].Secret, "requests"); err != nil {
		t.Errorf("a third of a minute later: %v", err)
	}
	if _, err := take(keys[0].Secret, "requests"); !fault.Is(err, fault.RateLimited) {
		t.Errorf("and once more: %v", err)
	}
}

func TestAKeysOwnLimitIsWithinTheAgents(t *testing.T) {
	t.Parallel()
	r, admin, c := start(t, storetest.SQLite(t))
	_, wide := add(t, r, admin, roster.NewAgent{Name: "busy"})
	in := roster.IssueKey{Agent: "busy", Workspace: "default", Kind: "signal", RateLimit: 2}
	narrow, err := r.IssueAgentKey(t.Context(), admin, in)
	if err != nil {
		t.Fatal(err)
	}
	take := func(secret string) (roster.Allowance, error) { return r.Take(identify(t, r, secret), "requests", 3) }
	for i := range 2 {
		if a, err := take(narrow.Secret); err != nil || a.Limit != 2 || a.Remaining != 1-i {
			t.Errorf("call %d: %+v %v", i+1, a, err)
		}
	}
	if _, err := take(narrow.Secret); !fault.Is(err, fault.RateLimited) ||
		!strings.Contains(err.Error(), "This key of busy has used up its 2 requests a minute") {
		t.Errorf("a call too many: %v", err)
	}
	if a, err := take(wide); err != nil || a.Limit != 3 || a.Remaining != 0 {
		t.Errorf("what was refused the one key is left for the other: %+v %v", a, err)
	}
	if _, err := take(wide); !fault.Is(err, fault.RateLimited) {
		t.Errorf("both count for the agent: %v", err)
	}
	c.Move(time.Minute)
	next, err := r.RotateKey(t.Context(), admin, narrow.Key.ID)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := take(next.Secret); err != nil || a.Limit != 2 {
		t.Errorf("the key that replaces it: %+v %v", a, err)
	}
	for _, limit := range []int64{-1, roster.MaxRateLimit + 1} {
		in.RateLimit = limit
		if _, err := r.IssueAgentKey(t.Context(), admin, in); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("%d: %v", limit, err)
		}
	}
}

func TestTheAgentsLimitComesBeforeTheServersAndThatBeforeTheProtocols(t *testing.T) {
	t.Parallel()
	base, _ := options(t, storetest.SQLite(t))
	number := func(n int64) *int64 { return &n }
	for _, c := range []struct {
		agent, server *int64
		own, want     int
	}{
		{nil, nil, 60, 60},
		{nil, nil, 0, 0},
		{nil, number(5), 60, 5},
		{nil, number(5), 0, 5},
		{nil, number(0), 60, 0},
		{number(9), number(5), 60, 9},
		{number(9), number(0), 0, 9},
		{number(0), number(5), 60, 0},
		{number(1_000_000), nil, 60, 1_000_000},
	} {
		o := base
		o.PerAgent = func() *int64 { return c.server }
		if a, err := roster.New(o).Take(roster.Identity{ID: "agent_x", RateLimit: c.agent}, "requests", c.own); err != nil ||
			a.Limit != c.want {
			t.Errorf("%+v: %+v %v", c, a, err)
		}
	}
}

func TestARateLimitIsANumberOrTheDefault(t *testing.T) {
	t.Parallel()
	r, admin, _ := start(t, storetest.SQLite(t))
	_, _ = add(t, r, admin, roster.NewAgent{Name: "limited"})
	set := func(raw string) (*int64, error) {
		a, err := r.ChangeAgent(t.Context(), admin, "default", "limited", roster.AgentChange{RateLimit: wire.Raw(raw)})
		return a.RateLimit, err
	}
	for _, raw := range []string{"0", "1", "1000000"} {
		if got, err := set(raw); err != nil || got == nil {
			t.Errorf("%s: %v %v", raw, got, err)
		}
	}
	if got, err := set("null"); err != nil || got == nil {
		t.Errorf("null is as good as absent: %v %v", got, err)
	}
	for _, raw := range []string{"-1", "1000001", "1.5", `"none"`, `"7"`, "true", "{}", "[]"} {
		if _, err := set(raw); !fault.Is(err, fault.InvalidPayload) || !strings.Contains(err.Error(), `or "default"`) {
			t.Errorf("%s: %v", raw, err)
		}
	}
	if got, err := set(`"default"`); err != nil || got != nil {
		t.Errorf("the default: %v %v", got, err)
	}
}
