package refusal

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"signalbox/internal/ledger"
)

// Kind is the kind of the entries.
const Kind = "call.refused"

// maxSums is how many different refusals are told apart in a minute.
const maxSums = 1000

// Entry is the body of call.refused: one refusal, or several of the same kind.
type Entry struct {
	Source string `json:"source,omitzero"` // where the calls came from
	Reason Reason `json:"reason"`
	Agent  string `json:"agent,omitzero"` // the id of the agent whose key or limit it is
	Key    string `json:"key,omitzero"`   // the id of the key
	Call   string `json:"call,omitzero"`  // method and route
	Count  int64  `json:"count"`
	From   int64  `json:"from"`  // microseconds: the first of them
	Until  int64  `json:"until"` // and the last
}

// sumKey is what refusals have in common that are summed up.
type sumKey struct {
	Call
	Cause
}

// sum is how many there were since the last entry.
type sum struct {
	count       int64
	from, until time.Time
	due         bool // to be written at once
}

// Log notes refusals, and writes them while it runs. The server makes one.
type Log struct {
	ledger *ledger.Ledger
	now    func() time.Time
	log    *slog.Logger
	// Every is how long refusals are summed up. Set it before Run.
	Every time.Duration
	kick  chan struct{} // has one element while a sum is due

	mu   sync.Mutex
	sums map[sumKey]*sum
}

// New makes the log of a server.
func New(l *ledger.Ledger, now func() time.Time, log *slog.Logger) *Log {
	return &Log{
		ledger: l, now: now, log: log, Every: time.Minute, kick: make(chan struct{}, 1), sums: map[sumKey]*sum{},
	}
}

// add counts a refusal.
func (l *Log) add(k sumKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.merge(k, sum{1, now, now, false}) {
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// merge adds to the sum of a key, and reports whether it is the first of its minute, which is due. The caller holds
// the lock.
func (l *Log) merge(k sumKey, more sum) (first bool) {
	s := l.sums[k]
	if s == nil && len(l.sums) >= maxSums {
		k = sumKey{Cause: Cause{Reason: Others}}
		s = l.sums[k]
	}
	if s == nil {
		s, first = &sum{due: true}, true
		l.sums[k] = s
	}
	if s.count == 0 || more.from.Before(s.from) {
		s.from = more.from
	}
	if more.until.After(s.until) {
		s.until = more.until
	}
	s.count += more.count
	s.due = s.due || more.due
	return first
}

// Run writes refusals until ctx ends, and then what is left. A failed write is tried again after a second.
func (l *Log) Run(ctx context.Context) error {
	turn := time.NewTicker(l.Every)
	defer turn.Stop()
	var again <-chan time.Time
	for ctx.Err() == nil {
		var err error
		select {
		case <-l.kick:
			err = l.write(ctx, false)
		case <-again:
			err = l.write(ctx, false)
		case <-turn.C:
			err = l.write(ctx, true)
		case <-ctx.Done():
		}
		if again = nil; err != nil && ctx.Err() == nil {
			l.log.Warn("cannot record refused calls; kept for the next try", "error", err.Error())
			again = time.After(time.Second)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := l.write(ctx, true); err != nil {
		l.log.Error("refused calls lost: write failed", "error", err.Error())
	}
	return nil
}

// write writes the sums that are due, or all of them, and then begins a new minute. If it fails they are kept.
func (l *Log) write(ctx context.Context, all bool) error {
	taken := l.take(all)
	if len(taken) == 0 {
		return nil
	}
	keys := slices.SortedFunc(maps.Keys(taken), func(a, b sumKey) int {
		return cmp.Or(taken[a].from.Compare(taken[b].from), cmp.Compare(a.Source, b.Source), cmp.Compare(a.Name, b.Name))
	})
	err := l.ledger.Write(ctx, func(tx *ledger.Tx) error {
		for _, k := range keys {
			tx.Append(k.entry(taken[k]))
		}
		return nil
	})
	if err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		for k, s := range taken {
			s.due = true
			l.merge(k, s)
		}
	}
	return err
}

// take takes the sums that are due, or all of them with the minute.
func (l *Log) take(all bool) map[sumKey]sum {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := map[sumKey]sum{}
	for k, s := range l.sums {
		if s.count > 0 && (all || s.due) {
			taken[k] = *s
			*s = sum{}
		}
	}
	if all {
		l.sums = map[sumKey]*sum{}
	}
	return taken
}

// entry is a sum as an entry. What nobody is known for concerns the whole server.
func (k sumKey) entry(s sum) ledger.Event {
	return ledger.Event{
		Workspace: k.Workspace, Kind: Kind, Actor: cmp.Or(k.Actor, "system"), Subject: cmp.Or(k.Agent, k.Source),
		Body: Entry{
			Source: k.Source, Reason: k.Reason, Agent: k.Agent, Key: k.Key, Call: k.Name, Count: s.count,
			From: s.from.UnixMicro(), Until: s.until.UnixMicro(),
		},
	}
}
