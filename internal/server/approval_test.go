package server_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/proxy"
	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/wire"
)

// heldBefore is what version 0.1 read of the entries about what was held and let go.
type heldBefore struct {
	Agent   string `json:"agent,omitzero"`
	Digest  string `json:"digest,omitzero"`
	Gate    string `json:"gate,omitzero"`
	What    string `json:"what,omitzero"`
	GoodFor int64  `json:"good_for,omitzero"`
	Open    int64  `json:"open,omitzero"`
	Once    bool   `json:"once,omitzero"`
	Used    bool   `json:"used,omitzero"`
}

// before are the tables and the state of version 0.1, when the harness and the proxy each kept
// approvals of their own.
func before() (sets []store.Migrations, projections []ledger.Projection) {
	sets, projections = server.Migrations(), server.Projections()
	for i := range sets {
		if slices.Contains([]string{"gate", "harness", "proxy"}, sets[i].Package) {
			sets[i].Steps = sets[i].Steps[:1]
		}
	}
	old := func(then func(*store.Tx, *ledger.Entry, heldBefore)) ledger.Apply {
		return func(tx *store.Tx, e *ledger.Entry) error {
			var b heldBefore
			err := wire.UnmarshalPart(e.Body, &b)
			then(tx, e, b)
			return err
		}
	}
	session := func(e *ledger.Entry, b heldBefore) string { return e.Trace[len("session:"+b.Agent+":"):] }
	for _, p := range projections {
		switch p.Name {
		case "harness":
			p.Apply["step.held"] = old(func(tx *store.Tx, e *ledger.Entry, b heldBefore) {
				tx.Exec(`INSERT INTO harness_gate (agent, session, digest, gate, good_for, once, used) VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (agent, session, digest) DO UPDATE SET gate = excluded.gate, good_for = excluded.good_for, once = excluded.once, used = excluded.used`,
					b.Agent, session(e, b), b.Digest, b.Gate, b.GoodFor, b.Once, false)
			})
			p.Apply["step.settled"] = old(func(tx *store.Tx, e *ledger.Entry, b heldBefore) {
				if b.Used {
					tx.Exec("UPDATE harness_gate SET used = $4 WHERE agent = $1 AND session = $2 AND digest = $3", b.Agent, session(e, b), b.Digest, true)
				}
			})
		case "proxy":
			p.Apply["proxy.held"] = old(func(tx *store.Tx, e *ledger.Entry, b heldBefore) {
				until := e.At.UnixMicro() + b.Open + b.GoodFor
				tx.Exec(`INSERT INTO proxy_hold (fingerprint, gate, what, good_for, once, used, opened_at, until) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
ON CONFLICT (fingerprint) DO UPDATE SET gate = excluded.gate, what = excluded.what, good_for = excluded.good_for, once = excluded.once, used = excluded.used, opened_at = excluded.opened_at, until = excluded.until`,
					e.Subject, b.Gate, b.What, b.GoodFor, b.Once, false, e.At.UnixMicro(), until)
				tx.Exec("DELETE FROM proxy_hold WHERE until < $1", e.At.UnixMicro())
			})
			p.Apply["proxy.released"] = old(func(tx *store.Tx, e *ledger.Entry, b heldBefore) {
				tx.Exec("UPDATE proxy_hold SET used = $1 WHERE fingerprint = $2 AND gate = $3", true, e.Subject, b.Gate)
			})
		}
	}
	return sets, projections
}

// chronicle writes what happened under version 0.1.
type chronicle struct {
	t      *testing.T
	ledger *ledger.Ledger
	gates  *gate.Gates
}

func (c *chronicle) append(kind, subject, trace string, body heldBefore) {
	c.t.Helper()
	err := c.ledger.Write(context.Background(), func(tx *ledger.Tx) error {
		text, err := wire.Marshal(body)
		tx.Append(ledger.Event{Workspace: "default", Kind: kind, Actor: "agent:x", Subject: subject, Trace: trace, Body: wire.Raw(text)})
		if body.Used || kind == "proxy.released" || err != nil {
			return err
		}
		due, err := gate.Prepare(gate.Opening{Agent: body.Agent, Requester: "agent:x", Risk: "high", Origin: gate.Origin{Protocol: "test"}, Shown: gate.Shown{Title: "Send it"}})
		due.Open(tx, body.Gate, "default", trace)
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

func (c *chronicle) resolve(gateID string) {
	c.t.Helper()
	err := c.ledger.Write(context.Background(), func(tx *ledger.Tx) error { return c.gates.Settle(tx, gateID, gate.Approved, "system", "") })
	if err != nil {
		c.t.Fatal(err)
	}
}

func TestApprovalsOfBeforeAreThoseThatTheLedgerMakes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		sets, projections := before()
		db := storetest.Open(t, address, sets...)
		now := time.Now()
		l, err := ledger.Open(t.Context(), ledger.Options{DB: db, Dir: t.TempDir(), Origin: "test.example/ledger", Now: func() time.Time { return now }, Projections: projections})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		c := &chronicle{t, l, gate.New(db, l, nil, nil)}

		const hour = int64(time.Hour / time.Microsecond)
		step := func(digest, gateID string, window int64, once bool) heldBefore {
			b := heldBefore{Agent: "agent_1", Digest: digest, Gate: gateID, GoodFor: window, Once: once}
			c.append("step.held", "bash", "session:agent_1:s:1", b)
			return b
		}
		settle := func(b heldBefore) {
			c.resolve(b.Gate)
			c.append("step.settled", "bash", "session:agent_1:s:1", heldBefore{Agent: b.Agent, Digest: b.Digest, Gate: b.Gate, Used: true})
		}
		step("waits", "gate_a", 0, true)
		settle(step("used", "gate_b", 0, true))
		settle(step("windowed", "gate_c", hour, false))
		settle(step("again", "gate_d", 0, true))
		step("again", "gate_e", 0, true)

		call := func(fingerprint, gateID string, once, resolved, released bool) {
			b := heldBefore{Agent: "agent_2", Gate: gateID, What: "tool_call", GoodFor: hour, Open: hour, Once: once}
			c.append("proxy.held", fingerprint, "call:"+fingerprint, b)
			if resolved {
				c.resolve(gateID)
			}
			if released {
				c.append("proxy.released", fingerprint, "call:"+fingerprint, heldBefore{Gate: gateID})
			}
		}
		call("forgotten", "gate_p", false, true, true)
		now = now.Add(3 * time.Hour)
		call("waits", "gate_q", false, false, false)
		call("approved", "gate_r", true, true, false)
		call("once", "gate_s", true, true, true)
		call("often", "gate_t", false, true, true)
		cancel()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}

		if err := db.Migrate(t.Context(), server.Migrations()...); err != nil {
			t.Fatal(err)
		}
		got, err := ledger.CheckRebuild(t.Context(), db, server.Migrations(), server.Projections(), nil)
		if err != nil || len(got.Differences) > 0 {
			t.Errorf("%+v %v", got.Differences, err)
		}
		gates := gate.New(db, nil, nil, nil)
		for asked, want := range map[gate.Asked]string{
			{Agent: "agent_1", Key: harness.Name + ":s:1", Digest: "waits"}:    "gate_a 1 0s",
			{Agent: "agent_1", Key: harness.Name + ":s:1", Digest: "used"}:     "gate_b 0 0s",
			{Agent: "agent_1", Key: harness.Name + ":s:1", Digest: "windowed"}: "gate_c -1 1h0m0s",
			{Agent: "agent_1", Key: harness.Name + ":s:1", Digest: "again"}:    "gate_e 1 0s",
			{Agent: "agent_2", Key: proxy.Name, Digest: "forgotten"}:           "none",
			{Agent: "agent_2", Key: proxy.Name, Digest: "waits"}:               "gate_q -1 1h0m0s",
			{Agent: "agent_2", Key: proxy.Name, Digest: "approved"}:            "gate_r 1 1h0m0s",
			{Agent: "agent_2", Key: proxy.Name, Digest: "once"}:                "gate_s 0 1h0m0s",
			{Agent: "agent_2", Key: proxy.Name, Digest: "often"}:               "gate_t -1 1h0m0s",
		} {
			found, err := gates.Find(t.Context(), asked)
			is := "none"
			if found != nil {
				is = fmt.Sprint(found.Gate, " ", found.Uses, " ", found.Window)
			}
			if err != nil || is != want {
				t.Errorf("%+v: %s, and want %s (%v)", asked, is, want, err)
			}
		}
	})
}
