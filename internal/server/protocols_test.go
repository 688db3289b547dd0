package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/clock"
	"signalbox/internal/counter"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/server"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// toys is a protocol that the server does not have: an agent makes a toy, which a person has
// to approve, and which falls asleep at once.
type toys struct {
	core    protocol.Core
	running chan struct{}
}

const napTimer = "toy.nap"

func toy(running chan struct{}) protocol.Protocol {
	return protocol.Protocol{
		Name: "toy", Label: "Toys & games",
		Migrations: store.Migrations{
			Package: "toy",
			Steps:   []string{`CREATE TABLE toy (name {text} NOT NULL PRIMARY KEY, asleep {bool} NOT NULL) {strict};`},
		},
		Projection: ledger.Projection{
			Name: "toy", Tables: ledger.Tables("toy (name)"),
			Apply: map[string]ledger.Apply{
				"toy.made": func(tx *store.Tx, e *ledger.Entry) error {
					tx.Exec("INSERT INTO toy (name, asleep) VALUES ($1, FALSE)", e.Subject)
					clock.Set(tx, clock.Timer{Kind: napTimer, Subject: e.Subject, Workspace: e.Workspace, Due: e.At})
					return nil
				},
				"toy.slept": func(tx *store.Tx, e *ledger.Entry) error {
					tx.Exec("UPDATE toy SET asleep = TRUE WHERE name = $1", e.Subject)
					return nil
				},
			},
		},
		Counters: map[string]counter.Reader{"toy.made": func(*ledger.Entry) ([]counter.Count, error) {
			return []counter.Count{{Project: "toys", Counts: counter.Counts{Completed: 1}}}, nil
		}},
		Open: func(_ context.Context, core protocol.Core) (protocol.Service, error) {
			return &toys{core, running}, nil
		},
	}
}

func (s *toys) Routes() []wire.Route {
	return []wire.Route{{
		Method: "POST", Path: "/toys/{name}", Summary: "Make a toy", Auth: wire.Agent,
		Handle: func(w http.ResponseWriter, r *http.Request) error {
			if err := s.make(r.Context(), roster.From(r.Context()), r.PathValue("name")); err != nil {
				return err
			}
			return wire.Reply(w, http.StatusCreated, map[string]string{"toy": r.PathValue("name")})
		},
	}}
}

func (s *toys) make(ctx context.Context, who roster.Identity, name string) error {
	due, err := gate.Prepare(gate.Opening{
		Agent: who.ID, AgentName: who.Name, Requester: who.Actor(), Origin: gate.Origin{Protocol: "toy"},
		Shown: gate.Shown{Title: "Keep " + name},
	})
	if err != nil {
		return err
	}
	return s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: who.Workspace, Kind: "toy.made", Actor: who.Actor(), Subject: name})
		due.Open(tx, gate.NewID(), who.Workspace, "")
		return nil
	})
}

func (s *toys) Timers() map[string]clock.Handler {
	return map[string]clock.Handler{napTimer: func(tx *ledger.Tx, t clock.Timer) error {
		tx.Append(ledger.Event{Workspace: t.Workspace, Kind: "toy.slept", Actor: "system", Subject: t.Subject})
		return nil
	}}
}

func (s *toys) Run(ctx context.Context) error {
	close(s.running)
	<-ctx.Done()
	return nil
}

func TestAProtocolInTheListIsAllThatItTakes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		running := make(chan struct{})
		made := toy(running)
		b := start(t, address, nil, made)
		_, key := b.addAgent("maker")
		if status, answer, _ := b.do(request{call: "POST /toys/duck", token: key}); status != 201 {
			t.Fatalf("its route: %d %s", status, answer)
		}
		testbed.Receive(t, "what it runs", running)
		testbed.Until(t, "its timer", func() bool {
			status, answer, _ := b.do(request{call: "GET /ops/ledger?kind=toy.slept&subject=duck", token: b.token()})
			return status == 200 && strings.Contains(answer, "duck")
		})
		testbed.Until(t, "its counter", func() bool {
			status, answer, _ := b.do(request{call: "GET /ops/counters?project=toys", token: b.token()})
			return status == 200 && strings.Contains(answer, `"completed":1`)
		})
		v := b.signedIn(b.token())
		v.sees("/ui/inbox", `<option value="toy">Toys &amp; games</option>`)
		v.sees("/ui/inbox?protocol=toy", "Keep duck", `<span class="protocol">Toys &amp; games</span>`)
		if page := v.sees("/ui/inbox?protocol=mail"); strings.Contains(page, "Keep duck") {
			t.Error("the filter lets a gate of another protocol pass")
		}
		if status, answer, _ := b.do(request{call: "GET /openapi.json"}); status != 200 ||
			!strings.Contains(answer, "/toys/{name}") {
			t.Errorf("its route is not described: %d", status)
		}
		b.stop()

		db, err := server.OpenStore(t.Context(), b.config)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		var asleep bool
		if err := db.QueryRow(t.Context(), "SELECT asleep FROM toy WHERE name = 'duck'", nil, &asleep); err != nil ||
			!asleep {
			t.Errorf("its table: asleep is %v, %v", asleep, err)
		}
		got, err := ledger.CheckRebuild(t.Context(), db, server.Migrations(made), server.Projections(made), nil)
		if err != nil || len(got.Differences) != 0 {
			t.Errorf("its state is not what the ledger says: %+v %v", got, err)
		}
	})
}

func TestEveryOriginOfGatesHasALabel(t *testing.T) {
	for _, o := range server.Protocols().Origins() {
		if o.Label == "" || strings.ToLower(o.Label) == o.Label {
			t.Errorf("people should be told of %s as a name with a capital, not %q", o.Name, o.Label)
		}
	}
}
