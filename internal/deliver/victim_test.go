package deliver_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/passkey"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// This file is the process that is killed in kill_test.go.

// ordersEnv holds the orders of such a process, and makes this program one.
const ordersEnv = "SIGNALBOX_TEST_ORDERS"

type orders struct {
	Address string // of the database
	Dir     string // its own folder, the same after each restart
	URL     string // of the receiver
	Seed    uint64
}

// word is a line that a victim says, after what it tells of was acknowledged to it.
type word struct {
	What   string // ready, opened, voted, told, queued or failed
	ID     string // of the gate or the delivery
	By     string // who voted, or who decided
	Status string // of the gate; of a failure the error
	Name   string // what the delivery tells of
}

func coreMigrations() []store.Migrations {
	return []store.Migrations{
		ledger.Migrations, clock.Migrations, roster.Migrations, passkey.Migrations, gate.Migrations, deliver.Migrations,
	}
}

func coreProjections() []ledger.Projection {
	return []ledger.Projection{
		clock.Projection(), roster.Projection(), passkey.Projection(), gate.Projection(), deliver.Projection(),
	}
}

// victim is what runs in the process.
type victim struct {
	orders
	ledger  *ledger.Ledger
	gates   *gate.Gates
	serving context.Context // ends when the process is to stop
	eager   context.Context // ends when nothing new is to be begun
	users   sync.WaitGroup
}

// obey works until its input ends, which it also does when the test dies. A line on
// the input means: begin nothing new.
func obey(text string) (code int) {
	v := &victim{}
	err := json.Unmarshal([]byte(text), &v.orders)
	if err == nil {
		err = v.live()
	}
	if err != nil {
		say(word{What: "failed", Status: err.Error()})
		return 1
	}
	return 0
}

func (v *victim) live() error {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	db, err := store.Open(ctx, v.Address)
	if err != nil {
		return err
	}
	defer db.Close()
	if err := db.Migrate(ctx, coreMigrations()...); err != nil {
		return err
	}
	if v.ledger, err = ledger.Open(ctx,
		ledger.Options{
			DB: db, Dir: v.Dir, Origin: "test.example/kill", Projections: coreProjections(),
			Log: log,
		}); err != nil {
		return err
	}
	v.gates = gate.New(db, v.ledger, nil, log)
	timers := clock.New(db, v.ledger, time.Now, log, v.gates.Handlers())
	outbox, err := deliver.New(deliver.Options{
		DB: db, Ledger: v.ledger, Key: masterKey, Log: log, Allow: []string{"127.0.0.0/8"},
		// Long enough that only what was killed is taken for dead, on a busy machine too.
		Timeout: 2 * time.Second, Lease: 5 * time.Second, Poll: 50 * time.Millisecond,
		Pauses: []time.Duration{20 * time.Millisecond, 50 * time.Millisecond},
	})
	if err != nil {
		return err
	}
	var base sync.WaitGroup
	core, stopCore := context.WithCancel(ctx)
	base.Go(func() { v.note(v.ledger.Run(core)) })
	var stop, quiet context.CancelFunc
	v.serving, stop = context.WithCancel(ctx)
	v.eager, quiet = context.WithCancel(v.serving)
	for _, run := range []func(context.Context) error{timers.Run, outbox.Run} {
		v.users.Go(func() { v.note(run(v.serving)) })
	}
	for i, work := range []func(*rand.Rand){v.open, v.open, v.vote, v.vote, v.queue} {
		v.users.Go(func() { work(rand.New(rand.NewPCG(v.Seed, uint64(i)))) })
	}
	say(word{What: "ready"})
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		quiet()
	}
	stop()
	quiet()
	v.users.Wait()
	stopCore()
	base.Wait()
	return nil
}

var saying sync.Mutex

// say writes one line in one piece: a kill cuts none in half.
func say(w word) {
	line, _ := json.Marshal(w)
	saying.Lock()
	defer saying.Unlock()
	_, _ = os.Stdout.Write(append(line, '\n'))
}

// note says that something failed that nothing here makes fail.
func (v *victim) note(err error) {
	if err != nil && !fault.Is(err, fault.Stopping) {
		say(word{What: "failed", Status: err.Error()})
	}
}

// pace is how often each of the workers does something: often enough that a kill
// hits something, seldom enough that what waits for a lease is soon done afterwards.
func (v *victim) pace(r *rand.Rand) bool {
	select {
	case <-time.After(time.Duration(10+r.IntN(60)) * time.Millisecond):
	case <-v.eager.Done():
	}
	return v.eager.Err() == nil
}

// open opens gates that expire soon, and waits for the outcome of some.
func (v *victim) open(r *rand.Rand) {
	micros := func(from, to int) int64 { return int64(from+r.IntN(to-from)) * 1000 }
	for v.pace(r) {
		gateID := gate.NewID()
		rules := gate.Rules{Expires: micros(20, 500), Quorum: 1 + r.IntN(2)}
		if r.IntN(2) == 0 {
			rules.OnExpiry = gate.Approved
		}
		for range max(0, r.IntN(6)-2) {
			rules.Ladder = append(rules.Ladder, gate.Step{After: micros(5, 600), Do: "remind", Whom: []string{"ada"}})
		}
		prepared, err := gate.Prepare(gate.Opening{
			Project: "default", Agent: "agent_x", AgentName: "x", Requester: "agent:x",
			Origin: gate.Origin{Protocol: "test", Reference: gateID}, Shown: gate.Shown{Title: "Send it"}, Rules: rules,
		})
		if err == nil {
			err = v.ledger.Write(v.serving, func(tx *ledger.Tx) error {
				prepared.Open(tx, gateID, "default", gateID)
				return nil
			})
		}
		if err != nil {
			v.note(err)
			continue
		}
		say(word{What: "opened", ID: gateID})
		if r.IntN(3) == 0 {
			v.users.Go(func() {
				g, err := v.gates.Wait(v.serving, gateID)
				v.note(err)
				v.tell(&g)
			})
		}
	}
}

// tell says what it was told of a gate, if that is its outcome.
func (v *victim) tell(g *gate.Gate) {
	if g.ResolvedAt != nil {
		say(word{What: "told", ID: g.ID, By: g.ResolvedBy, Status: string(g.Status)})
	}
}

// vote has two operators vote at once, about gates of both processes, often about
// when they expire.
func (v *victim) vote(r *rand.Rand) {
	for v.pace(r) {
		all, _, err := v.gates.List(v.serving, gate.Filter{Status: gate.Pending}, nil, 50)
		v.note(err)
		if len(all) == 0 {
			continue
		}
		g := all[r.IntN(len(all))]
		if r.IntN(3) > 0 {
			about := time.Until(*g.ExpiresAt) + time.Duration(r.IntN(20)-10)*time.Millisecond
			select {
			case <-time.After(about):
			case <-v.serving.Done():
			}
		}
		var both sync.WaitGroup
		for _, name := range []string{"ada", "bob"} {
			ballot := gate.Ballot{Approve: r.IntN(4) > 0, Note: id.New("note")}
			both.Go(func() { v.cast(g.ID, name, ballot) })
		}
		both.Wait()
	}
}

func (v *victim) cast(gateID, name string, b gate.Ballot) {
	g, err := v.gates.Vote(v.serving,
		roster.Identity{Kind: roster.HolderOperator, ID: "op_" + name, Name: name, Role: roster.Operator}, gateID, b)
	switch {
	case err == nil:
		say(word{What: "voted", ID: gateID, By: name, Name: b.Note})
		v.tell(&g)
	case fault.Is(err, fault.AlreadyResolved):
		told := fault.From(err).Details
		say(word{What: "told", ID: gateID, By: fmt.Sprint(told["resolved_by"]), Status: fmt.Sprint(told["status"])})
	case !fault.Is(err, fault.Conflict): // has voted, in another round or process
		v.note(err)
	}
}

// queue records something and queues deliveries that tell of it, in one transaction.
func (v *victim) queue(r *rand.Rand) {
	for v.pace(r) {
		name := id.New("note")
		some := r.Perm(len(paths))[:1+r.IntN(2)]
		ids := make([]string, len(some))
		err := v.ledger.Write(v.serving, func(tx *ledger.Tx) (err error) {
			tx.Append(ledger.Event{
				Workspace: "default", Kind: "note.written", Actor: "system", Subject: name, Trace: name,
				Body: len(some),
			})
			for i, p := range some {
				d := hook(v.URL + paths[p])
				d.Trace, d.Payload = name, []byte(name)
				if ids[i], err = deliver.Queue(tx, d); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			v.note(err)
			continue
		}
		for _, d := range ids {
			say(word{What: "queued", ID: d, Name: name})
		}
	}
}
