package rulebook

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/policy"
	"github.com/signalbox/signalbox/internal/roster"
	"github.com/signalbox/signalbox/internal/store"
)

// SuspendedRule is the name of what decides about a suspended agent.
const SuspendedRule = "suspended"

// Book is the policy in force and its history.
type Book struct {
	db      *store.DB
	ledger  *ledger.Ledger
	roster  *roster.Roster
	now     func() time.Time
	log     *slog.Logger
	readers map[string]Reader
	kinds   []string // of readers
	replays chan struct{}

	mu      sync.RWMutex
	inForce inForce
	moved   chan struct{} // closed when inForce changes
}

// inForce is a version that decides. Without a policy it blocks everything.
type inForce struct {
	number int64
	policy *policy.Policy
	recent *tally
}

// New makes the book of a ledger that has Projection. readers are of the kinds of
// entries in which protocols put decisions of their own accord, and of those that say
// what else an agent did. Nothing is allowed before Run has read the policy.
func New(db *store.DB, l *ledger.Ledger, r *roster.Roster, now func() time.Time, log *slog.Logger, readers map[string]Reader) *Book {
	b := &Book{db: db, ledger: l, roster: r, now: now, log: log, readers: ownKinds(), replays: make(chan struct{}, 1), moved: make(chan struct{})}
	maps.Copy(b.readers, readers)
	b.kinds = slices.Sorted(maps.Keys(b.readers))
	return b
}

// Decide says what is to happen with what an agent is about to do. The record in the
// decision is the caller's to append.
func (b *Book) Decide(ctx context.Context, who roster.Identity, event policy.Event) Decision {
	b.mu.RLock()
	in := b.inForce
	b.mu.RUnlock()
	now := b.now()
	recent := &looked{at: in.recent, agent: who.ID, now: now}
	agent := policy.Agent{Name: who.Name, Address: who.Address, Workspace: who.Workspace, Trust: who.Trust, Labels: who.Labels, Suspended: who.Suspended}
	v := decide(ctx, in.policy, policy.Input{Event: event, Agent: agent, Now: now, Recent: recent})
	return Decision{v, Record{
		Policy: in.number, Then: v.Action, Rule: v.Rule, Reason: v.Reason, Failed: v.Failed, Shadow: v.Shadow,
		AgentID: who.ID, Agent: agent, Now: now.UnixMicro(), Recent: recent.seen, Event: &event,
	}}
}

// decide is the one way to a verdict, now and in a replay.
func decide(ctx context.Context, p *policy.Policy, in policy.Input) policy.Verdict {
	switch {
	case in.Agent.Suspended:
		return policy.Verdict{Action: policy.Block, Rule: SuspendedRule, Reason: "This agent is suspended. An operator can resume it."}
	case p == nil:
		return policy.Verdict{
			Action: policy.Block, Rule: policy.DefaultRule, Failed: true,
			Reason: "There is no policy in force that can be read, so everything is blocked. An admin can apply one with `signalbox policy apply`.",
		}
	}
	return p.Decide(ctx, in)
}

// Run keeps the newest version in force, and counts what its rules ask for, by
// following the ledger until ctx ends.
func (b *Book) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		seq, err := b.load(ctx)
		if err != nil {
			if ctx.Err() == nil {
				b.log.Error("cannot read the policy; the one in force stays", "error", err.Error())
			}
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
			continue
		}
		b.follow(ctx, seq)
	}
	return nil
}

// follow counts until another version is applied, or the tables were rebuilt.
func (b *Book) follow(ctx context.Context, seq int64) {
	recent := b.inForce.recent // only this goroutine changes it
	for e := range b.ledger.Follow(ctx, seq) {
		if e.Kind == applied || strings.HasPrefix(e.Kind, "state.") {
			return
		}
		b.count(recent, &e)
	}
}

// load reads the newest version and what its rules count, up to the entry it returns.
func (b *Book) load(ctx context.Context) (seq int64, err error) {
	if seq, err = b.ledger.Head(ctx); err != nil {
		return 0, err
	}
	v, err := b.newest(ctx)
	if err != nil {
		return 0, err
	}
	next := inForce{number: v.Number, policy: b.inForce.policy}
	if v.Number != b.inForce.number {
		next.policy = b.read(ctx, v)
	}
	var counts []policy.Count
	if next.policy != nil {
		counts = next.policy.Counts()
	}
	next.recent = newTally(counts)
	if err := b.fill(ctx, next.recent, seq); err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inForce = next
	close(b.moved)
	b.moved = make(chan struct{})
	return seq, nil
}

// read parses a version. What was checked before it was applied can fail here only
// when another Signalbox applied it; then nothing is allowed.
func (b *Book) read(ctx context.Context, v Version) *policy.Policy {
	if v.Number == 0 {
		return nil
	}
	source, err := b.source(ctx, v)
	if err == nil {
		var p *policy.Policy
		if p, err = policy.Parse(source); err == nil {
			return p
		}
	}
	b.log.Error("the policy in force cannot be read; everything is blocked until another is applied", "version", v.Number, "error", err.Error())
	return nil
}

// fill counts what was done before seq, as far back as anything looks.
func (b *Book) fill(ctx context.Context, t *tally, seq int64) error {
	if len(t.counts) == 0 {
		return nil
	}
	from, err := b.ledger.SeqBefore(ctx, t.reach(b.now()))
	if err != nil {
		return err
	}
	for ; from < seq; from += step {
		entries, err := b.entries(ctx, from, min(from+step, seq))
		if err != nil {
			return err
		}
		for i := range entries {
			b.count(t, &entries[i])
		}
	}
	return nil
}

// step is how many entries are read at once.
const step = 2000

func (b *Book) entries(ctx context.Context, after, upTo int64) ([]ledger.Entry, error) {
	return b.ledger.Entries(ctx, ledger.Query{After: after, UpTo: upTo, Kinds: b.kinds, Limit: step})
}

// count adds what an entry says. One whose body was erased says nothing any more.
func (b *Book) count(t *tally, e *ledger.Entry) {
	read := b.readers[e.Kind]
	if len(t.counts) == 0 || read == nil || e.Body == nil {
		return
	}
	reading, err := read(e)
	if err != nil {
		b.log.Error("an entry cannot be counted", "error", err.Error())
		return
	}
	t.add(reading.facts(), e.At)
}

// await waits until at least this version is in force on this node.
func (b *Book) await(ctx context.Context, number int64) error {
	for {
		b.mu.RLock()
		now, moved := b.inForce.number, b.moved
		b.mu.RUnlock()
		if now >= number {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
