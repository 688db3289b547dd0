package server_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/refusal"
	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// refusals are the refused calls on record.
func (b *box) refusals() (all []refusal.Entry) {
	b.t.Helper()
	var page ledger.EntryPage
	b.ops(200, "GET /ops/ledger?limit=1000&kind="+refusal.Kind, "", &page)
	for _, e := range page.Entries {
		var one refusal.Entry
		if err := json.Unmarshal(e.Body, &one); err != nil {
			b.t.Fatal(err)
		}
		all = append(all, one)
	}
	return all
}

// head is the number of entries, to see that a refused call has changed nothing. That it was refused is an entry
// too, which comes when it comes and is not counted.
func (b *box) head() int64 {
	b.t.Helper()
	for {
		var s server.Status
		before := len(b.refusals())
		b.ops(200, "GET /ops/status", "", &s)
		if len(b.refusals()) == before {
			return s.Entries - int64(before)
		}
	}
}

// seq is the number of the last entry.
func (b *box) seq() int64 {
	b.t.Helper()
	var s server.Status
	b.ops(200, "GET /ops/status", "", &s)
	return s.Entries
}

// written is how many entries somebody's calls have written since the one with a number: neither refusals nor what the
// server does by itself, such as the end of a run that nobody watches, are among them.
func (b *box) written(since int64) (n int64) {
	b.t.Helper()
	for {
		var page struct {
			Entries []struct{ Kind, Actor string }
			Next    int64
		}
		b.ops(200, fmt.Sprint("GET /ops/ledger?limit=1000&after=", since), "", &page)
		for _, e := range page.Entries {
			if e.Kind != refusal.Kind && e.Actor != "system" {
				n++
			}
		}
		if len(page.Entries) == 0 {
			return n
		}
		since = page.Next
	}
}

// issue makes another key of an agent.
func (b *box) issue(agent string, limit int) (id, secret string) {
	b.t.Helper()
	var made struct {
		Secret string
		Key    struct{ ID string }
	}
	b.ops(201, "POST /ops/keys", fmt.Sprintf(`{"agent":%q,"rate_limit":%d}`, agent, limit), &made)
	return made.Key.ID, made.Secret
}

const mcpCall = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"mail_inbox","arguments":{}}}`

func TestEveryRefusalIsInTheLedger(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		coder, _ := b.addAgent("coder")
		slow, slowKey := b.addAgent("slow")
		b.ops(200, "PATCH /ops/agents/slow", `{"rate_limit":1}`, nil)
		revokedID, revoked := b.issue("coder", 0)
		b.ops(200, "POST /ops/keys/"+revokedID+"/revoke", "", nil)
		const wrong = "rs-amp-00000000000000000000000000000000"
		over := map[string]func(key string) int{
			"GET /v1/messages/pending": func(key string) int {
				status, _, _ := b.do(request{call: "GET /v1/messages/pending", token: key})
				return status
			},
			"POST /mcp": func(key string) int {
				status, _, _ := b.do(request{
					call: "POST /mcp", token: key, body: mcpCall,
					header: map[string]string{"Accept": "application/json, text/event-stream"},
				})
				return status
			},
			"POST /ahp": func(key string) int {
				status, _ := b.ahp(key, fmt.Sprintf(preAction, 1))
				return status
			},
		}
		var want []refusal.Entry
		for call, do := range over {
			limitedID, limited := b.issue("coder", 1)
			for _, c := range []struct {
				key    string
				status int
				entry  refusal.Entry
			}{
				{"", 401, refusal.Entry{Reason: refusal.MissingKey}},
				{wrong, 401, refusal.Entry{Reason: refusal.WrongKey}},
				{revoked, 401, refusal.Entry{Reason: refusal.RevokedKey, Agent: coder, Key: revokedID}},
				{limited, 429, refusal.Entry{Reason: refusal.RateLimited, Agent: coder, Key: limitedID}},
				{slowKey, 429, refusal.Entry{Reason: refusal.RateLimited, Agent: slow}},
			} {
				if c.status == 429 {
					do(c.key) // uses the limit up; over MCP the tool finds that, which is no status
				}
				if status := do(c.key); status != c.status && (call != "POST /ahp" || status != 200) {
					t.Errorf("%s with %q: %d, want %d", call, c.entry.Reason, status, c.status)
				}
				c.entry.Call = call
				want = append(want, c.entry)
			}
		}
		for _, w := range want {
			testbed.Until(t, fmt.Sprintf("%+v", w), func() bool {
				for _, got := range b.refusals() {
					if got.Call == w.Call && got.Reason == w.Reason && got.Agent == w.Agent && (w.Key == "" || got.Key == w.Key) &&
						got.Source == "127.0.0.1" && got.Count > 0 && got.From <= got.Until {
						return true
					}
				}
				return false
			})
		}
		for _, e := range b.refusals() {
			if text := fmt.Sprintf("%+v", e); strings.Contains(text, wrong) || strings.Contains(text, revoked) {
				t.Errorf("a key is on record: %s", text)
			}
		}
		b.wantRebuilt(1)
	})
}

// Ten thousand refused calls are few entries, and each is counted, also by a server that stops meanwhile.
func TestRefusalsAreSummedUpAndOutliveAStop(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		b := start(t, address, map[string]string{"data": t.TempDir()})
		const calls = 10_000
		testbed.AtOnce(20, func(i int) {
			token := []string{"", "rs-amp-00000000000000000000000000000000"}[i%2]
			for range calls / 20 {
				if status, answer, _ := b.do(request{call: "GET /v1/messages/pending", token: token}); status != 401 {
					t.Errorf("%d %s", status, answer)
				}
			}
		})
		b.stop()
		if !strings.HasPrefix(address, "postgres") {
			address = filepath.Join(b.config.Data, server.DatabaseFile)
		}
		db, err := store.Open(t.Context(), address)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		l, err := ledger.Open(t.Context(), ledger.Options{DB: db, Dir: b.config.Data})
		if err != nil {
			t.Fatal(err)
		}
		entries, err := l.Entries(t.Context(), ledger.Query{Kinds: []string{refusal.Kind}})
		if err != nil {
			t.Fatal(err)
		}
		var count int64
		for _, e := range entries {
			var one refusal.Entry
			if err := e.Decode(&one); err != nil {
				t.Fatal(err)
			}
			count += one.Count
		}
		if count != calls || len(entries) > 20 {
			t.Errorf("%d entries count %d refusals, want %d", len(entries), count, calls)
		}
	})
}
