package ready

import (
	"cmp"
	"context"
	"sync"
	"syscall"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Options are what a Node stands on. Dir is the data folder.
type Options struct {
	DB     *store.DB
	Ledger *ledger.Ledger
	Dir    string
	Now    func() time.Time
	// Unsigned is how old an entry may be without a checkpoint over it; a minute when 0. Signing takes half a second.
	Unsigned time.Duration
}

// lookEvery is how often the database is tried and the ledger looked at, however often somebody asks.
const lookEvery = time.Second

// Node is this node. It is safe for concurrent use.
type Node struct {
	Options

	mu       sync.Mutex
	tried    time.Time // when a write was tried last
	looked   time.Time // when the ledger was looked at last
	unsigned error     // what was found then
	stuck    int64     // the size of the checkpoint after which entries were found to be old
	since    time.Time // when that was found first
}

// New makes a Node.
func New(o Options) *Node {
	o.Unsigned = cmp.Or(o.Unsigned, time.Minute)
	return &Node{Options: o, stuck: -1}
}

// Problem is the reason why this node should get no calls, nil if there is none.
func (n *Node) Problem(ctx context.Context) error {
	if err := room(n.Dir); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.writes(ctx); err != nil {
		return err
	}
	return n.signs(ctx)
}

// reserve is the room that a disk keeps for what is under way: what SQLite writes before it copies it, checkpoints,
// attachments that have begun. A small disk keeps a twentieth of it.
const reserve = 64 << 20

// room refuses a disk that is full or nearly so, or read-only.
func room(dir string) error {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return fault.Wrap(err, fault.StoreUnavailable,
			"The disk of the data folder cannot be looked at. Check that the folder is still there.")
	}
	free, keep := s.Bavail*uint64(s.Bsize), min(reserve, s.Blocks/20*uint64(s.Bsize))
	const readOnly = 1 // of statfs(2), here and on other systems
	switch {
	case s.Flags&readOnly != 0:
		return fault.New(fault.StoreReadOnly, "The disk of the data folder is read-only. Mount it for writing.")
	case free < keep:
		return fault.New(fault.StoreFull, "The disk of the data folder has %d MB left, and %d MB of it are kept for what is "+
			"under way. Free some space.", free>>20, max(1, keep>>20))
	case s.Files > 0 && s.Ffree < 16:
		return fault.New(fault.StoreFull, "The disk of the data folder takes no more files. Remove some.")
	}
	return nil
}

// writes returns why the last write failed. While there is such a reason it tries one that changes nothing: a node
// that gets no calls would never find out that writes succeed again.
func (n *Node) writes(ctx context.Context) error {
	if n.DB.Trouble() != nil && time.Since(n.tried) >= lookEvery {
		n.tried = time.Now()
		if tx, err := n.DB.Begin(ctx, "ledger_tree"); err == nil {
			tx.Exec("UPDATE ledger_tree SET size = size WHERE id = 1")
			_, _ = tx.Commit(false) // how it ended is what Trouble says
		}
	}
	return n.DB.Trouble()
}

// insist is how long old entries have to stay unsigned before that is a problem: a node that has just started signs
// what was left within a second.
const insist = 2 * time.Second

// signs returns why entries are not signed, if the oldest of them is older than it may be: the node without the key
// alone, or one that has it and fails. Without a checkpoint nothing shows that entries were changed.
func (n *Node) signs(ctx context.Context) error {
	if time.Since(n.looked) < lookEvery {
		return n.unsigned
	}
	at, size, err := n.oldest(ctx)
	if err != nil {
		return store.Explain(err)
	}
	n.looked, n.unsigned = time.Now(), nil
	switch {
	case at.IsZero() || n.Now().Sub(at) < n.Unsigned:
		n.stuck = -1
	case n.stuck != size:
		n.stuck, n.since = size, time.Now()
	case time.Since(n.since) >= insist:
		why := "The log says why this node cannot sign."
		if !n.Ledger.Signs() {
			why = "This node does not have the ledger's key. Copy " + ledger.KeyFile + " into its data folder and restart it, " +
				"or start the node that has it."
		}
		n.unsigned = fault.New(fault.StoreUnavailable, "Nobody has signed what was recorded since %s. %s",
			at.UTC().Format(time.RFC3339), why)
	}
	return n.unsigned
}

// oldest is the time of the first entry that no checkpoint covers, zero if there is none, and the size of the newest
// checkpoint.
func (n *Node) oldest(ctx context.Context) (at time.Time, size int64, err error) {
	if _, size, err = n.Ledger.Signed(ctx); err != nil && !fault.Is(err, fault.NotFound) {
		return at, 0, err
	}
	first, err := n.Ledger.Entries(ctx, ledger.Query{After: size, Limit: 1})
	if err != nil || len(first) == 0 {
		return at, size, err
	}
	return first[0].At, size, nil
}
