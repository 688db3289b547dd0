package rulebook

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/scope"
	"signalbox/internal/store"
)

// SuspendedRule is the name in place of a rule's for the block of a suspended agent, or of one that acts for a
// suspended user.
const SuspendedRule = "suspended"

// Book is the policy in force and its history. The server makes one for each process; Run
// keeps it up to date. Decide may be called at any time, from any goroutine.
type Book struct {
	db      *store.DB
	ledger  *ledger.Ledger
	roster  *roster.Roster
	now     func() time.Time
	log     *slog.Logger
	readers map[string]Reader
	kinds   []string // of readers
	replays chan struct{}
	parsed  atomic.Pointer[policy.Policy]
	pending pending

	mu      sync.RWMutex
	inForce inForce
	moved   chan struct{} // closed when inForce changes
}

// inForce is the version that decides, with the counters that its rules read. Its fields
// change together, under the lock. Without a policy everything is blocked.
type inForce struct {
	number int64
	policy *policy.Policy
	recent *tally
}

// New makes the book of a ledger that has Projection. readers are for the kinds of entries
// in which protocols store decisions in a form of their own, and for those that say what
// else an agent did. Everything is blocked until Run has read the policy.
func New(db *store.DB, l *ledger.Ledger, r *roster.Roster, now func() time.Time, log *slog.Logger,
	readers map[string]Reader,
) *Book {
	b := &Book{
		db: db, ledger: l, roster: r, now: now, log: log, readers: ownKinds(), replays: make(chan struct{}, 1),
		moved: make(chan struct{}),
	}
	maps.Copy(b.readers, readers)
	b.kinds = slices.Sorted(maps.Keys(b.readers))
	return b
}

// Decide asks the policy in force about what an agent is about to do. It waits for nothing
// and writes nothing: the caller appends the record in the transaction of what follows from
// the decision, after Recheck. A decision that is not recorded cannot be counted, replayed or
// proved.
func (b *Book) Decide(ctx context.Context, who roster.Identity, event policy.Event) Decision {
	b.mu.RLock()
	in := b.inForce
	b.mu.RUnlock()
	event.Read() // so that what the arguments say is recorded too
	event.Tier = cmp.Or(event.Tier, policy.API)
	r := Record{
		Policy: in.number, AgentID: who.ID, Tier: event.Tier,
		Agent: policy.Agent{
			Name: who.Name, Address: who.Address, Workspace: who.Workspace, Trust: who.Trust,
			Labels: who.Labels, Suspended: who.Suspended,
		},
		Now: b.now().UnixMicro(), Event: &event,
	}
	var err error
	if r.User, r.Scopes, err = b.behalf(ctx, who, event.User); err != nil {
		return b.unknown(r, err)
	}
	return r.decide(ctx, b, in.policy, &countReader{at: in.recent})
}

// decide asks a policy about what a record says of an event, and fills in the rest of the record. recent has the place
// where counters are read, and nothing else yet.
func (r Record) decide(ctx context.Context, b *Book, p *policy.Policy, recent *countReader) Decision {
	now := time.UnixMicro(r.Now).UTC()
	recent.of, recent.now = r.belongs(), now
	in := r.input()
	in.Recent = recent
	v := decide(ctx, p, in)
	r.Then, r.Rule, r.Reason, r.Failed, r.Shadow, r.Recent = v.Action, v.Rule, v.Reason, v.Failed, v.Shadow, recent.seen
	d := Decision{Verdict: v, Record: r}
	if recent.seen != nil {
		d.basis = &basis{book: b, policy: p, recent: recent, record: r}
	}
	return d
}

// behalf is on whose behalf an agent acts that names a user, and what both of them may do, nil for everything.
func (b *Book) behalf(ctx context.Context, who roster.Identity, named string) (u policy.User, scopes []string,
	err error,
) {
	found, err := b.roster.For(ctx, who, named)
	scopes = who.Scopes
	if of := found.User; of != nil {
		u = policy.User{
			ID: of.ID, Name: of.Name, Email: of.Email, Scopes: of.Scopes, Limits: of.Limits, Suspended: of.Suspended,
			Verified: found.Claimed == "",
		}
		if scopes == nil {
			scopes = of.Scopes
		} else {
			scopes = scope.Narrow(scopes, of.Scopes)
		}
	}
	return u, scopes, err
}

// unknown is the decision when nobody can tell on whose behalf the agent acts: a block, as for a rule that fails.
func (b *Book) unknown(r Record, cause error) Decision {
	b.log.Error("cannot tell on whose behalf an agent acts", "agent", r.Agent.Name, "error", cause.Error())
	v := policy.Verdict{
		Action: policy.Block, Rule: policy.DefaultRule, Failed: true,
		Reason: "This is blocked because it cannot be told on whose behalf the agent acts. Try again in a moment.",
	}
	r.Then, r.Rule, r.Reason, r.Failed = v.Action, v.Rule, v.Reason, v.Failed
	return Decision{Verdict: v, Record: r}
}

// userOf is the id of the user whose agent this is, "" for none. It is for what agents did without a decision: a
// decision says on whose behalf it was.
func (b *Book) userOf(agentID string) string {
	owner, err := b.roster.OwnerOf(context.Background(), agentID)
	if err != nil {
		b.log.Error("cannot tell whose an agent is; what it did is not counted for a user", "error", err.Error())
	}
	return owner
}

// decide is the only path to a verdict, live and in a replay, so that both treat suspended
// agents and a missing policy alike.
func decide(ctx context.Context, p *policy.Policy, in policy.Input) policy.Verdict {
	switch {
	case in.Agent.Suspended:
		return policy.Verdict{
			Action: policy.Block, Rule: SuspendedRule,
			Reason: "This agent is suspended. An operator can resume it.",
		}
	case in.User.Suspended:
		return policy.Verdict{
			Action: policy.Block, Rule: SuspendedRule,
			Reason: "The user " + in.User.Name + ", on whose behalf this agent acts, is suspended. An operator can let them go on.",
		}
	case p == nil:
		return policy.Verdict{
			Action: policy.Block, Rule: policy.DefaultRule, Failed: true,
			Reason: "There is no policy in force that can be read, so everything is blocked. An admin " +
				"can apply one with `signalbox policy apply`.",
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
				b.log.Error("cannot read the policy; the version in force stays", "error", err.Error())
			}
			ledger.Pause(ctx, nil, time.Second)
			continue
		}
		b.follow(ctx, seq)
	}
	return nil
}

// follow counts entries until another version is applied, or the tables were rebuilt; then
// the caller loads again.
func (b *Book) follow(ctx context.Context, seq int64) {
	recent := b.inForce.recent // only this goroutine changes inForce
	for e := range b.ledger.Follow(ctx, seq) {
		b.count(recent, &e)
		if e.Kind == applied || strings.HasPrefix(e.Kind, "state.") {
			return
		}
	}
}

// load puts the newest version in force, with its counters, and returns the entry up to which
// they have counted. The head is read before the version, so an entry that is written
// meanwhile is counted by follow. Counters that the version before had already are kept.
func (b *Book) load(ctx context.Context) (seq int64, err error) {
	if seq, err = b.ledger.Head(ctx); err != nil {
		return 0, err
	}
	v, err := newest(b.ledger.Prover(ctx))
	if err != nil {
		return 0, err
	}
	next := b.inForce
	if v.Number != next.number {
		next.number = v.Number
		if next.policy, err = b.open(ctx, v); err != nil {
			return 0, err
		}
	}
	var counts []policy.Count
	if next.policy != nil {
		counts = next.policy.Counts()
	}
	if next.recent == nil || !next.recent.has(counts) {
		next.recent = newTally(counts)
		if err := b.fill(ctx, next.recent, seq); err != nil {
			return 0, err
		}
		next.recent.add(seq, nil, time.Time{})
	}
	seq = next.recent.upTo()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inForce = next
	close(b.moved)
	b.moved = make(chan struct{})
	return seq, nil
}

// open parses a version. It was checked before it was applied, so it can be wrong only if
// another version of Signalbox applied it. Then there is no policy, and everything is
// blocked.
func (b *Book) open(ctx context.Context, v Version) (*policy.Policy, error) {
	if v.Number == 0 {
		return nil, nil
	}
	source, err := b.source(ctx, v)
	if err != nil {
		return nil, err
	}
	p, err := b.parse(source)
	if err != nil {
		b.log.Error("the policy in force cannot be read; everything is blocked until another is applied", "version", v.Number,
			"error", err.Error())
	}
	return p, nil // one that is wrong stays so
}

// parse compiles a policy, and remembers the last one: the same source is compiled when it is
// checked, when it is applied and when it is put in force, and ten thousand rules take a
// second each time.
func (b *Book) parse(source []byte) (*policy.Policy, error) {
	if p := b.parsed.Load(); p != nil && p.Version() == policy.Hash(source) {
		return p, nil
	}
	p, err := policy.Parse(source)
	if err == nil {
		b.parsed.Store(p)
	}
	return p, err
}

// fill counts the entries up to seq, as far back as the longest window reaches.
func (b *Book) fill(ctx context.Context, t *tally, seq int64) error {
	if len(t.counts) == 0 {
		return nil
	}
	from, err := b.ledger.SeqBefore(ctx, t.reach(b.now()))
	if err != nil {
		return err
	}
	if seq-from > 10*step {
		b.log.Info("reading entries for the counters of the policy", "entries", seq-from, "window", t.longest.String())
	}
	for p := range b.pages(ctx, from, seq) {
		if p.err != nil {
			return p.err
		}
		for i := range p.entries {
			t.add(p.entries[i].entry.Seq, p.entries[i].reading.facts(), p.entries[i].entry.At)
		}
	}
	return ctx.Err()
}

// count adds what an entry says.
func (b *Book) count(t *tally, e *ledger.Entry) {
	if e.Seq <= t.upTo() {
		return
	}
	var facts []Fact
	if len(t.counts) > 0 && b.readers[e.Kind] != nil {
		facts = b.readEntry(e).reading.facts()
	}
	t.add(e.Seq, facts, e.At)
}

// Policy is the policy in force with its number, nil if there is none that can be read. It is
// for protocols that look at the rules before they ask (Policy.Reads); another version may be
// in force a moment later.
func (b *Book) Policy() (int64, *policy.Policy) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.inForce.number, b.inForce.policy
}

// InForce is the number of the version that decides on this node, 0 before there is one.
func (b *Book) InForce() int64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.inForce.number
}

// await waits until at least this version is in force on this node, or ctx ends.
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
