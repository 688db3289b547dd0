package ledger

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/mod/sumdb/tlog"
	"golang.org/x/sync/errgroup"

	"signalbox/internal/ledger/notes"
	"signalbox/internal/store"
)

// Options say what a ledger is opened with. DB and Dir belong together: Dir has the key
// that the database names, and the checkpoint that the database has to match.
type Options struct {
	DB          *store.DB
	Dir         string // where the key and the checkpoint file are
	Origin      string // the log's name in checkpoints, used when the key is made
	Projections []Projection
	Retention   time.Duration // how long bodies are kept; 0 is for ever
	// Alone says that no other process writes to the database: an entry that this one has not committed is then
	// forged, before it is signed.
	Alone bool
	// Clean changes the body of an entry of a kind before it is hashed and stored, and reports whether
	// it did; nil keeps all bodies as they are. It is for credentials, which must not be kept.
	Clean func(kind string, body []byte) ([]byte, bool)
	Poll  time.Duration // how long a follower waits for a wake-up before it looks anyway; 0 is a second
	Now   func() time.Time
	Log   *slog.Logger
}

// Ledger is the open ledger of one process. Open makes it; Run has to be running for Write
// to return; it ends with Run's context, and no Write is lost that was accepted before.
//
// Any number of processes may have the same ledger open on PostgreSQL. SQLite is for one:
// another would hear of its commits only by polling.
//
// Everything but the fields of the committer is safe for concurrent use.
type Ledger struct {
	db          *store.DB
	dir         string
	projections projections
	retention   time.Duration
	clean       func(kind string, body []byte) ([]byte, bool)
	poll        time.Duration
	alone       bool
	now         func() time.Time
	log         *slog.Logger
	key         atomic.Pointer[key]

	queue   chan *request
	stopped chan struct{} // closed when no more writes are taken

	// These belong to the goroutine that commits.
	lastHead  head // where our last batch left the head
	readHead  int  // how many batches still read the head instead of guessing it
	commitFor time.Duration
	settleFor time.Duration

	mu      sync.Mutex    // guards signal and waiters; nothing is called while it is held
	signal  chan struct{} // closed and replaced when there are new entries
	waiters []*Waiters    // only added to

	rotating sync.Mutex                       // held while a key is replaced
	rekeying sync.Mutex                       // held while key is
	building sync.Mutex                       // held while the tree is extended
	signed   notes.Checkpoint                 // the newest one this node has signed or seen; under building
	covered  atomic.Pointer[notes.Checkpoint] // signed, for those who prove entries meanwhile
	mismatch atomic.Pointer[error]
	stats    stats
	recent   recent

	leaves         leaves
	found          int64 // the last entry at Open
	contradictions contradictions
}

// Open opens the ledger in a migrated database, makes its key if it is new, and
// compares its tree with the checkpoint file. A mismatch is not an error of Open:
// the ledger can be read, and refuses writes; see Mismatch.
func Open(ctx context.Context, o Options) (*Ledger, error) {
	l := &Ledger{
		db: o.DB, dir: o.Dir, retention: o.Retention, clean: o.Clean, poll: cmp.Or(o.Poll, pollEvery), now: o.Now, log: o.Log,
		alone:       o.Alone,
		projections: combine(o.Projections),
		readHead:    1,
		commitFor:   commitTimeout,
		settleFor:   settleTimeout,
		queue:       make(chan *request, maxQueue),
		stopped:     make(chan struct{}),
		signal:      make(chan struct{}),

		leaves: leaves{known: map[int64]tlog.Hash{}},
		contradictions: contradictions{
			queue: make(chan Contradiction, 256), then: func(*Tx, Contradiction) error { return nil },
		},
	}
	if l.now == nil {
		l.now = time.Now
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	k, err := openKey(ctx, o)
	if err != nil {
		return nil, err
	}
	l.key.Store(k)
	if err := l.compareWithFile(ctx); err != nil {
		return nil, err
	}
	l.setSigned(l.signed)
	if l.Mismatch() != nil { // the tree that was signed is not there to prove entries with; they are for reading
		l.covered.Store(&notes.Checkpoint{})
	}
	err = l.db.Read.QueryRowContext(ctx, "SELECT coalesce(max(seq), 0) FROM ledger_entry").Scan(&l.found)
	return l, err
}

// Alone reports whether no other process writes to the database.
func (l *Ledger) Alone() bool { return l.alone }

// Run does the ledger's work until ctx ends: it commits, builds the tree, signs,
// listens for other nodes, and erases what retention says. It returns when every
// accepted write has been answered and a last checkpoint is signed.
func (l *Ledger) Run(ctx context.Context) error {
	var g errgroup.Group
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	g.Go(func() error { return l.db.Listen(background, l.wake) })
	g.Go(func() error { l.wakeLoop(background); return nil })
	g.Go(func() error { l.checkpointLoop(background); return nil })
	g.Go(func() error { l.retentionLoop(background); return nil })
	g.Go(func() error { l.contradictionLoop(background); return nil })
	g.Go(func() error {
		l.commitLoop(ctx)
		stop() // the others go on until the last entry is in
		return nil
	})
	return g.Wait()
}

// wake tells followers in this process that there may be new entries. It promises nothing:
// a follower that wakes reads the database, and may find none.
func (l *Ledger) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.signal)
	l.signal = make(chan struct{})
}

// News returns a channel that is closed at the next wake-up. Take it before
// reading, so that no wake-up is missed in between.
func (l *Ledger) News() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.signal
}

// Mismatch is the reason why writes are refused, nil if they are not. Once set it stays
// until the process ends (LED-25).
func (l *Ledger) Mismatch() error { return l.refusal() }

// refusal is Mismatch for callers inside of the package.
func (l *Ledger) refusal() error {
	if p := l.mismatch.Load(); p != nil {
		return *p
	}
	return nil
}

// Refuse makes the ledger read-only because of what somebody outside of it has found: what is there is not what was signed.
func (l *Ledger) Refuse(err error) { l.refuse(err) }

// refuse makes the ledger read-only for the rest of this process. Only the first reason is
// kept and logged, because the others usually follow from it.
func (l *Ledger) refuse(err error) {
	if l.mismatch.CompareAndSwap(nil, &err) {
		l.log.Error("THE LEDGER IS NOT WHAT WAS SIGNED; WRITES ARE REFUSED", "reason", err.Error())
	}
}

// Stats are counters of this process since its start; other nodes have their own.
type Stats struct {
	Entries       int64
	Batches       int64
	CommitSeconds float64
	Queue         int
}

// stats are the counters behind Stats; the committer adds, anybody reads.
type stats struct{ entries, batches, nanos atomic.Int64 }

func (s *stats) committed(entries int, took time.Duration) {
	s.entries.Add(int64(entries))
	s.batches.Add(1)
	s.nanos.Add(int64(took))
}

// Stats reads the counters.
func (l *Ledger) Stats() Stats {
	return Stats{
		Entries: l.stats.entries.Load(), Batches: l.stats.batches.Load(),
		CommitSeconds: time.Duration(l.stats.nanos.Load()).Seconds(), Queue: len(l.queue),
	}
}
