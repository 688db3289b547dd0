package server_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/counter"
	"signalbox/internal/testbed"
)

// counted is the report when everything is counted, of 30 days unless the query says otherwise.
func (b *box) counted(query ...string) (r counter.Report) {
	b.t.Helper()
	head := b.head()
	testbed.Until(b.t, "the counting", func() bool {
		r = counter.Report{}
		b.ops(200, "GET /ops/counters?"+strings.Join(query, "&"), "", &r)
		return r.Seq >= head
	})
	return r
}

// wantParts fails the test when the parts of a report are not the whole, by any kind of them.
func wantParts(t testing.TB, r counter.Report) {
	t.Helper()
	kinds := map[string][]counter.Sum{}
	for _, d := range r.Decks {
		kinds["decks"] = append(kinds["decks"], d.Counts)
	}
	for _, a := range r.Agents {
		kinds["agents"] = append(kinds["agents"], a.Counts)
	}
	for _, d := range r.Days {
		kinds["days"] = append(kinds["days"], d.Counts)
	}
	for name, all := range map[string][]counter.NameSum{"models": r.Models, "protocols": r.Protocols, "rules": r.Rules} {
		for _, one := range all {
			kinds[name] = append(kinds[name], one.Counts)
		}
	}
	want := rounded(r.Total)
	for kind, all := range kinds {
		var sum counter.Sum
		for _, one := range all {
			sum = plus(sum, one)
		}
		if sum = rounded(sum); kind != "decks" && kind != "agents" { // others do not say what waits
			sum.Gates.Waiting = want.Gates.Waiting
		}
		if diff := cmp.Diff(want, sum); diff != "" {
			t.Errorf("the %s are not the whole (-whole +sum):\n%s", kind, diff)
		}
	}
}

// plus adds up two sums.
func plus(a, b counter.Sum) counter.Sum {
	a.CostUSD += b.CostUSD
	for to, from := range map[*int64]int64{
		&a.Runs.Completed: b.Runs.Completed, &a.Runs.Failed: b.Runs.Failed, &a.Runs.Interrupted: b.Runs.Interrupted,
		&a.Runs.Cancelled: b.Runs.Cancelled, &a.Runs.Stopped: b.Runs.Stopped,
		&a.Calls: b.Calls, &a.EstimatedCalls: b.EstimatedCalls, &a.InputTokens: b.InputTokens,
		&a.OutputTokens:    b.OutputTokens,
		&a.CacheReadTokens: b.CacheReadTokens, &a.CacheWriteTokens: b.CacheWriteTokens, &a.Costs.Verified: b.Costs.Verified,
		&a.Costs.Under: b.Costs.Under, &a.Costs.Over: b.Costs.Over, &a.Costs.UnknownModel: b.Costs.UnknownModel,
		&a.Costs.Zero: b.Costs.Zero, &a.Gates.Opened: b.Gates.Opened, &a.Gates.Approved: b.Gates.Approved,
		&a.Gates.Rejected: b.Gates.Rejected, &a.Gates.Expired: b.Gates.Expired, &a.Gates.Withdrawn: b.Gates.Withdrawn,
		&a.Gates.Waiting: b.Gates.Waiting, &a.Blocks: b.Blocks, &a.Decisions: b.Decisions,
	} {
		*to += from
	}
	return a
}

// rounded is a sum with what can be added up: dollars to the billionth, and no median.
func rounded(s counter.Sum) counter.Sum {
	s.CostUSD, s.MedianSeconds = math.Round(s.CostUSD*1e9)/1e9, nil
	return s
}

// gatesWaiting is more than any list shows at once.
const gatesWaiting = 860

func TestEveryBadgeCountsAllAndNotAPage(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		key := b.agentKey("asker", "default")
		for i := range gatesWaiting {
			b.signal(key, "asker", fmt.Sprint("run-", i))
		}
		var status struct {
			Now struct {
				GatesWaiting int64 `json:"gates_waiting"`
				AgentsOnline int64 `json:"agents_online"`
				Agents       int64
			}
		}
		b.ops(200, "GET /ops/status", "", &status)
		if status.Now.GatesWaiting != gatesWaiting || status.Now.Agents != 1 || status.Now.AgentsOnline != 1 {
			t.Errorf("%+v", status)
		}
		r := b.counted()
		wantParts(t, r)
		if r.Total.Gates.Waiting != gatesWaiting || r.Total.Gates.Opened != gatesWaiting {
			t.Errorf("%+v", r.Total.Gates)
		}
		user := b.signedIn(b.token())
		for path, says := range map[string]string{
			"/ui/inbox":    "860 gates waiting",
			"/ui/overview": `<span>Gates waiting</span><b>860</b>`,
			"/ui/ledger":   `<b class="count">860<`,
			"/ui/decks":    `>860</a>`,
		} {
			user.sees(path, says)
		}
		// All of them are looked at for their age.
		if page := user.sees("/ui/overview"); !strings.Contains(page, "under 10 min<b>860</b>") &&
			!strings.Contains(page, "under 1 h<b>") {
			t.Errorf("the ages are of a page: %s", page)
		}
		_, text, _ := b.do(request{call: "GET /metrics", token: b.token()})
		for _, line := range []string{
			`signalbox_gates_waiting{workspace="default"} 860`,
			`signalbox_gates_total{outcome="opened",protocol="amp",workspace="default"} 860`,
		} {
			if !strings.Contains(text, line) {
				t.Errorf("/metrics lacks %q", line)
			}
		}
	})
}

func TestMetricsShowStrangersNoMoneyAndOthersTheirWorkspace(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		b.ops(201, "POST /ops/workspaces", `{"name":"other"}`, nil)
		b.signal(b.agentKey("tailor", "default"), "tailor", "r-1")
		b.signal(b.agentKey("scout", "other"), "scout", "r-1")
		var otto struct{ Token string }
		b.ops(201, "POST /ops/operators", `{"name":"otto","workspace":"other","role":"viewer"}`, &otto)
		b.counted()
		for _, c := range []struct {
			who, token string
			has, lacks []string
		}{
			{"a stranger", "", []string{"signalbox_ledger_head"}, []string{"signalbox_cost", "workspace=", "gates_waiting"}},
			{"an agent", b.agentKey("curious", "default"), nil, []string{"signalbox_cost", "workspace="}},
			{
				"otto", otto.Token,
				[]string{`signalbox_cost_dollars_total{model=`, `workspace="other"`},
				[]string{`workspace="default"`},
			},
			{"the admin", b.token(), []string{`workspace="other"`, `workspace="default"`}, nil},
		} {
			_, text, _ := b.do(request{call: "GET /metrics", token: c.token})
			for _, one := range c.has {
				if !strings.Contains(text, one) {
					t.Errorf("%s does not see %q", c.who, one)
				}
			}
			for _, one := range c.lacks {
				if strings.Contains(text, one) {
					t.Errorf("%s sees %q", c.who, one)
				}
			}
		}
	})
}

func TestCountersByEveryKindAndByHour(t *testing.T) {
	eachBoxWith(t, map[string]string{"clock.movable": "true"}, func(t *testing.T, b *box) {
		key := b.agentKey("tailor", "default")
		b.signal(key, "tailor", "r-1")
		later := time.Now().UTC().Add(90 * time.Minute).Format(time.RFC3339)
		b.ops(200, "PUT /ops/clock", fmt.Sprintf(`{"now":%q}`, later), nil)
		b.signal(key, "tailor", "r-2")
		whole := b.counted()
		wantParts(t, whole)
		size := func(r *counter.Report) map[string]int {
			return map[string]int{
				"deck": len(r.Decks), "agent": len(r.Agents), "model": len(r.Models), "protocol": len(r.Protocols),
				"rule": len(r.Rules), "day": len(r.Days), "hour": len(r.Hours),
			}
		}
		for _, by := range counter.Kinds {
			var r counter.Report
			b.ops(200, "GET /ops/counters?by="+by, "", &r)
			for kind, n := range size(&r) {
				if (n > 0) != (kind == by) {
					t.Errorf("by %s there are %d of kind %s", by, n, kind)
				}
			}
			if diff := cmp.Diff(whole.Total, r.Total); diff != "" {
				t.Errorf("by %s (-whole +part):\n%s", by, diff)
			}
		}
		if len(whole.Hours) != 2 {
			t.Fatalf("%+v", whole.Hours)
		}
		// An hour by itself is told apart in the same way, and so is one agent.
		for _, h := range whole.Hours {
			var one counter.Report
			b.ops(200, "GET /ops/counters?from="+h.Hour+"&to="+h.Hour, "", &one)
			wantParts(t, one)
			got, want := rounded(one.Total), rounded(h.Counts)
			got.Gates.Waiting = 0 // it is said of no hour
			if diff := cmp.Diff(want, got); diff != "" || len(one.Models) == 0 {
				t.Errorf("%s: %s", h.Hour, diff)
			}
		}
		var own counter.Report
		b.ops(200, "GET /ops/counters?agent=tailor", "", &own)
		if own.Seq, own.OldestWaitingSeconds = whole.Seq, whole.OldestWaitingSeconds; !cmp.Equal(whole, own) {
			t.Errorf("all of one agent is not all:\n%s", cmp.Diff(whole, own))
		}
		for query, says := range map[string]string{
			"by=mood":                                    "deck, agent, model, protocol, rule, day, hour",
			"by=hour&from=2026-01-01&to=2026-03-01":      "1 to 31",
			"from=2026-01-01T00&to=2026-03-01T00":        "1 to 31",
			"from=2026-01-01T25&to=2026-01-02":           "2026-11-01T13",
			"from=2026-01-02T05&to=2026-01-02T04&by=day": "1 to 31",
		} {
			status, text, _ := b.do(request{call: "GET /ops/counters?" + query, token: b.token()})
			if status != 400 || !strings.Contains(text, says) {
				t.Errorf("%s: %d %s", query, status, text)
			}
		}
	})
}
