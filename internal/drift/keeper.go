package drift

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// every is the time between two looks.
const every = 2 * time.Second

// The kinds of alarms. People and programs know them.
const (
	Forward = "clock_forward" // the clock jumped forward, and was followed
	Back    = "clock_back"    // the clock was set back; held until the alarm is closed, or followed
	Differs = "clock_differs" // the machine's clock is not the database's
	Ahead   = "clock_healed"  // entries were ahead of the clock
)

// jumped is the body of clock.jumped. Times are in microseconds.
type jumped struct {
	Host     string `json:"host"`
	Expected int64  `json:"expected"` // the time that it was
	Clock    int64  `json:"clock"`    // what the machine's clock said
	Followed bool   `json:"followed"`
}

// Options are what a Keeper works with.
type Options struct {
	DB *store.DB
	// Database reads the database's clock; nil asks DB.
	Database func(context.Context) (time.Time, error)
	Ledger   *ledger.Ledger
	Alarms   *alarm.Alarms
	Clock    *Clock
	Log      *slog.Logger
	// Now is the time of the server's entries, which tests of conformance may set ahead of Clock.
	Now func() time.Time
}

// State is how the clocks are. It is empty while there is nothing to say.
type State struct {
	Problem string  `json:"problem,omitempty"`
	Seconds float64 `json:"off_by_seconds,omitempty"` // our time, less the machine's clock
}

// Keeper looks at the clocks. It is safe for concurrent use.
type Keeper struct {
	Options
	host string

	mu      sync.Mutex
	problem string // of the last look
	raised  bool   // the alarm about a jump back that is not followed
	jumps   int64
}

// Keep makes a Keeper. It looks for the first time in Start.
func Keep(o Options) *Keeper {
	k := &Keeper{Options: o}
	if k.Database == nil {
		k.Database = k.DB.Clock
	}
	k.host, _ = os.Hostname()
	return k
}

// Start looks once, before the first call is answered, so that nothing is written at a time that is not.
func (k *Keeper) Start(ctx context.Context) error { return k.Look(ctx) }

// Run looks until ctx ends.
func (k *Keeper) Run(ctx context.Context) error {
	for ledger.Pause(ctx, nil, every); ctx.Err() == nil; ledger.Pause(ctx, nil, every) {
		if err := k.Look(ctx); err != nil && ctx.Err() == nil {
			k.Log.Warn("cannot compare the clocks; will try again", "error", err.Error())
		}
	}
	return nil
}

// State says how the clocks are.
func (k *Keeper) State() State {
	k.mu.Lock()
	defer k.mu.Unlock()
	return State{k.problem, k.Clock.offset().Seconds()}
}

// Jumps counts the jumps that were found since the start.
func (k *Keeper) Jumps() int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.jumps
}

// Look compares the clocks once, and does what follows. A ledger that takes no writes is left alone; time goes on
// without a jump then.
func (k *Keeper) Look(ctx context.Context) error {
	if k.Ledger.Mismatch() != nil {
		return nil
	}
	database, err := k.Database(ctx)
	if err != nil {
		return store.Explain(err)
	}
	seen, err := k.seen(ctx)
	if err != nil {
		return err
	}
	f := k.Clock.look(database, seen)
	if f.Jumped == 0 {
		k.Clock.follow(f)
	} else if err := k.jump(ctx, f); err != nil {
		return err
	}
	return k.settle(ctx, f)
}

// seen reports whether an operator has closed the alarm about a jump back that is not followed.
func (k *Keeper) seen(ctx context.Context) (bool, error) {
	k.mu.Lock()
	raised := k.raised
	k.mu.Unlock()
	if !raised || !k.Clock.held() {
		return false, nil
	}
	stands, err := k.Alarms.Stands(ctx, Back)
	return !stands, err
}

// jump records a jump with its alarm, and follows what was found. One that is held already is not recorded again.
func (k *Keeper) jump(ctx context.Context, f Finding) error {
	k.mu.Lock()
	known := f.Held && k.raised
	k.mu.Unlock()
	if known {
		k.Clock.follow(f)
		return nil
	}
	k.Log.Error("THE CLOCK HAS JUMPED", "by", f.Jumped.Round(time.Second).String(), "followed", !f.Held)
	before := k.Clock.course.Load()
	err := k.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		k.Clock.follow(f) // here, so that the entry is the first one with the new time
		tx.Heal(Jump)
		tx.Append(ledger.Event{Kind: "clock.jumped", Actor: "system", Subject: k.host, Body: jumped{
			k.host, f.Expects.UnixMicro(), f.Machine.UnixMicro(), !f.Held,
		}})
		return alarm.Raise(tx, k.alarm(f))
	})
	if err != nil {
		k.Clock.course.Store(before) // the next look finds it again
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.jumps++
	k.raised = f.Held
	return nil
}

// alarm is what people are told of a jump.
func (k *Keeper) alarm(f Finding) alarm.Alarm {
	by := f.Jumped.Abs().Round(time.Second)
	was := fmt.Sprintf("On %s it was %s, and the clock said %s.", k.host, stamp(f.Expects), stamp(f.Machine))
	switch {
	case f.Jumped > 0:
		return alarm.Alarm{Kind: Forward, Title: "The clock has jumped forward", Detail: fmt.Sprintf(
			"By %s. %s The server has followed: what was due in between happened early, and limits for a time began anew. If "+
				"nobody of you set the clock, find out who did.", by, was)}
	case f.Held:
		return alarm.Alarm{Kind: Back, Title: "The clock was set back", Detail: fmt.Sprintf(
			"By %s. %s The server goes on by the time that it was, so that no deadline becomes later. Set the clock right; or "+
				"close this alarm, and the server follows the clock: what waits then has %s longer.", by, was, by)}
	}
	return alarm.Alarm{Kind: Back, Title: "The clock has gone back to the right time", Detail: fmt.Sprintf(
		"By %s. %s The server has followed.", by, was)}
}

// settle heals the time of entries, and says what is wrong now.
func (k *Keeper) settle(ctx context.Context, f Finding) error {
	var problem string
	switch {
	case k.Clock.held():
		problem = fmt.Sprintf("the clock of %s was set back by %s, and is not followed; close the alarm, or set it right",
			k.host, (-f.Jumped).Round(time.Second))
	case f.Differs != 0:
		problem = fmt.Sprintf("the clock of %s differs from the database's by %s; the server works by the database's",
			k.host, f.Differs.Round(time.Second))
		if err := k.Alarms.Raise(ctx, alarm.Alarm{
			Kind: Differs, Title: "The clock of " + k.host + " is not that of the database",
			Detail: "They differ by " + f.Differs.Round(time.Second).String() + ". The server works by the database's, which all " +
				"nodes have in common. Set both by the same time server.",
		}); err != nil {
			return err
		}
	}
	k.mu.Lock()
	k.problem = problem
	if !k.Clock.held() {
		k.raised = false
	}
	k.mu.Unlock()
	return k.heal(ctx)
}

// heal steps the time of entries back to the clock if they are ahead of it.
func (k *Keeper) heal(ctx context.Context) error {
	var last int64
	if err := k.DB.QueryRow(ctx, "SELECT at FROM ledger_head WHERE id = 1", nil, &last); err != nil {
		return store.Explain(err)
	}
	if time.UnixMicro(last).Sub(k.Now()) < Jump {
		return nil
	}
	first, err := k.Ledger.SeqBefore(ctx, k.Now())
	if err != nil {
		return err
	}
	err = k.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		to := tx.Begun()
		ahead := tx.Heal(Jump).Round(time.Second)
		if ahead == 0 {
			return nil // another node was first
		}
		return alarm.Raise(tx, alarm.Alarm{
			Kind: Ahead, Title: "The ledger was ahead of the clock, and was healed",
			Detail: fmt.Sprintf("By %s: the clock was ahead when entries %d to %d were written, or is behind now. What was opened "+
				"or approved in them holds up to %s longer than was meant: look at `signalbox gates ls`. If the clock is wrong now, "+
				"set it right.", ahead, first+1, to, ahead),
		})
	})
	if err == nil {
		k.Log.Error("the ledger was ahead of the clock, and was healed", "entries_from", first+1)
	}
	return err
}

func stamp(at time.Time) string { return at.UTC().Format(time.DateTime) }
