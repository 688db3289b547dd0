package meter

import (
	"context"
	"sync"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
	"signalbox/internal/wire"
)

// maxQueued is how many records may wait to be written. While there are more, calls are refused: no
// call is carried that cannot be recorded (PRX-47).
const maxQueued = 10_000

// flushEvery is the least time between two writes, so that many calls share one (PRX-46). A commit,
// with everything that follows the ledger, costs more than carrying a call.
const flushEvery = 100 * time.Millisecond

// Recorder writes records to the ledger after calls were answered, many in one entry. Its queue is in
// memory: a process that is killed loses up to flushEvery of records, never a decision. One
// goroutine (Run) writes; any may add.
type Recorder struct {
	core protocol.Core
	kick chan struct{} // has one element while there is something to write

	mu      sync.Mutex
	by      map[Group]*Calls
	events  []ledger.Event // other entries, in order
	writing []Write
	queued  int   // records in by, events and writing
	failed  error // why the last failed write failed
}

// Write writes what depends on what is in the tables. It may be called again if the transaction fails.
type Write func(tx *ledger.Tx) error

// Group is what the records of one entry have in common.
type Group struct {
	Workspace, Actor, Agent, Project string
	Of                               behalf.Of
}

// NewRecorder makes a recorder. Nothing is written before Run.
func NewRecorder(core protocol.Core) *Recorder {
	return &Recorder{core: core, kick: make(chan struct{}, 1), by: map[Group]*Calls{}}
}

// CheckRoom refuses a call while too many records wait to be written.
func (r *Recorder) CheckRoom() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queued < maxQueued {
		return nil
	}
	return fault.Wrap(r.failed, fault.Overloaded,
		"Too many calls wait to be written down. Try again in a moment.").With(wire.RetryAfter, 2)
}

// Add queues the record of one call.
func (r *Recorder) Add(g Group, one *Called) {
	r.queue(func() {
		if r.by[g] == nil {
			r.by[g] = &Calls{Of: g.Of, Agent: g.Agent, Project: g.Project}
		}
		r.by[g].Calls = append(r.by[g].Calls, one)
	})
}

// Append queues another entry that nobody waits for, such as a decision of a rule in shadow mode.
func (r *Recorder) Append(e ledger.Event) {
	r.queue(func() { r.events = append(r.events, e) })
}

// Later queues something that is written with the next records.
func (r *Recorder) Later(write Write) {
	r.queue(func() { r.writing = append(r.writing, write) })
}

// queue queues one thing, and lets Run write soon. It does not block.
func (r *Recorder) queue(add func()) {
	r.mu.Lock()
	add()
	r.queued++
	r.mu.Unlock()
	r.wake()
}

// wake lets Run write soon.
func (r *Recorder) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// Run writes what is queued until ctx ends, and then what is left. A failed write is tried again after a second.
func (r *Recorder) Run(ctx context.Context) {
	for {
		select {
		case <-r.kick:
		case <-ctx.Done():
			r.flushRest(ctx)
			return
		}
		pause := flushEvery
		if !r.flush(ctx) {
			pause = time.Second
			r.wake()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// flushRest writes what is left when ctx has ended, and logs what is lost if that fails.
func (r *Recorder) flushRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if !r.flush(ctx) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.core.Log.Error("call records lost: write failed", "calls", r.queued, "error", r.failed.Error())
	}
}

// flush writes what is queued in one transaction, and reports whether it could. If not, all of it is
// queued again, before what was added meanwhile.
func (r *Recorder) flush(ctx context.Context) bool {
	r.mu.Lock()
	events, writing := r.events, r.writing
	for g, c := range r.by {
		body, err := ledger.Encode(c)
		if err != nil { // impossible: every text in it went through Clean
			r.core.Log.Error("cannot encode call records; dropped", "error", err.Error())
			continue
		}
		events = append(events, ledger.Event{
			Workspace: g.Workspace, Kind: KindCalled, Actor: g.Actor, Subject: g.Agent, Body: body,
		})
	}
	n := r.queued
	r.events, r.writing, r.by, r.queued = nil, nil, map[Group]*Calls{}, 0
	r.mu.Unlock()
	if len(events)+len(writing) == 0 {
		return true
	}
	events, writing, err := r.write(ctx, events, writing)
	if err == nil {
		return true
	}
	if ctx.Err() == nil { // else flushRest tries once more
		r.core.Log.Error("cannot write call records; kept for the next try", "calls", n, "error", err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.writing = append(events, r.events...), append(writing, r.writing...)
	r.queued, r.failed = r.queued+n, err
	return false
}

// write writes entries, and what depends on the tables after them. With an error it returns what is not written: each
// of the latter is a function of its own for the ledger.
func (r *Recorder) write(ctx context.Context, events []ledger.Event, writing []Write) ([]ledger.Event, []Write, error) {
	if len(events) > 0 {
		if err := r.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			for _, e := range events {
				tx.Append(e)
			}
			return nil
		}); err != nil {
			return events, writing, err
		}
	}
	for i, one := range writing {
		if err := r.core.Ledger.Write(ctx, one); err != nil {
			return nil, writing[i:], err
		}
	}
	return nil, nil, nil
}
