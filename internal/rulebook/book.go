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

	"signalbox/internal/behalf"
	"signalbox/internal/handoff"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook/made"
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
	handoff *handoff.Handoffs
	now     func() time.Time
	log     *slog.Logger
	readers map[string]Reader
	kinds   []string // of readers
	replays chan struct{}
	parsed  atomic.Pointer[policy.Policy]
	pending pending
	// Made are the decisions of this process.
	Made    made.Tally
	budgets atomic.Bool // there are handoffs with a budget, so that what is done under them is counted

	mu      sync.RWMutex
	inForce inForce
	moved   chan struct{} // closed when inForce changes
}

// inForce is the version that decides, with the counters that its rules read. Its fields
// change together, under the lock. Without a policy everything is blocked.
type inForce struct {
	number     int64
	policy     *policy.Policy
	layers     map[Layer]layerInForce // the narrower ones; not changed once it is here
	layersUpTo int64                  // the entry up to which they were read
	recent     *tally
}

// New makes the book of a ledger that has Projection. readers are for the kinds of entries
// in which protocols store decisions in a form of their own, and for those that say what
// else an agent did. Everything is blocked until Run has read the policy.
func New(db *store.DB, l *ledger.Ledger, r *roster.Roster, h *handoff.Handoffs, now func() time.Time,
	log *slog.Logger, readers map[string]Reader,
) *Book {
	b := &Book{
		db: db, ledger: l, roster: r, handoff: h, now: now, log: log, readers: ownKinds(), replays: make(chan struct{}, 1),
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
func (b *Book) Decide(ctx context.Context, who roster.Identity, event policy.Event) (d Decision) {
	defer func() {
		b.Made.Count(made.Kind{
			Workspace: who.Workspace, Protocol: event.Protocol, Verdict: string(d.Record.Then), Rule: d.Record.Rule,
		})
	}()
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
	var found roster.Behalf
	var under handoff.Standing
	var err error
	if r.Refused, r.Reason, err = b.admit(ctx, &who, &event); err == nil && r.Refused == "" {
		found, under, err = b.behalf(ctx, who, event.Claim, event.Session, event.User)
	}
	if err != nil {
		return b.unknown(r, err)
	}
	r.User, r.Scopes, r.Delegation = userOf(found), scope.Common(who.Scopes, under.Scopes), under.Delegation
	r.Within = under.Within
	if found.User != nil {
		r.Scopes = scope.Common(scope.Common(r.Scopes, found.User.Scopes), found.Scopes)
	}
	// Whoever works under the handoff of a run is in the background, whatever the call says.
	if under.Verified && id.Is("run", under.Work) && event.Tier == policy.Interactive {
		event.Tier, r.Tier = policy.Background, policy.Background
	}
	r.Claimed = behalf.Decided(r.User, event.User).Claimed
	d = r.decide(ctx, b, in.layersFor(&r), &countReader{at: in.recent}, kept(under))
	d.behalf = found
	return d
}

// kept is how a call stands under a handoff, where that has to be looked at again; nil where there is nothing to look at.
func kept(under handoff.Standing) *handoff.Standing {
	if !under.Verified {
		return nil
	}
	own := under // only this takes memory
	return &own
}

// decide asks the rules about what a record says of an event, and fills in the rest of the record. recent has the place
// where counters are read, and nothing else yet. under is how the call stands under a handoff, nil without one.
func (r Record) decide(ctx context.Context, b *Book, rules inForceFor, recent *countReader, under *handoff.Standing,
) Decision {
	now := time.UnixMicro(r.Now).UTC()
	recent.of, recent.now, recent.own = r.belongs(), now, r.Event.Reserve
	r.Delegation.Hops = recent.spend(r.Delegation.Hops)
	in := r.input()
	in.Recent = recent
	v := decide(ctx, rules, in)
	r.Then, r.Rule, r.Reason, r.Failed, r.Shadow = v.Action, v.Rule, v.Reason, v.Failed, v.Shadow
	r.Layer, r.Recent, r.Reserved = v.Layer, recent.seen, recent.reserved
	d := Decision{Verdict: v, Record: r}
	if recent.seen != nil || under != nil && recent.at != nil {
		d.basis = &basis{book: b, rules: rules, recent: recent, record: r, under: under}
	}
	return d
}

// Behalf is on whose behalf an agent acts in a call that names a user and claims a handoff, and how it stands under it.
// It is for protocols that want to know before they ask.
func (b *Book) Behalf(ctx context.Context, who roster.Identity, claim policy.Claim, named string) (roster.Behalf,
	handoff.Standing, error,
) {
	return b.behalf(ctx, who, claim, "", named)
}

// behalf is the user of the handoff, or whom the roster says.
func (b *Book) behalf(ctx context.Context, who roster.Identity, claim policy.Claim, session, named string) (
	found roster.Behalf, under handoff.Standing, err error,
) {
	claim.Within = cmp.Or(claim.Within, claimed.Of(ctx).Claim.Within)
	if who.Proved != nil && named == "" {
		named = who.Proved.User.ID // a handoff for somebody else is refused
	}
	if under, err = b.handoff.Under(ctx, who, claim, session, named); err != nil {
		return found, under, err
	}
	if under.User != nil {
		return roster.Behalf{User: under.User, Proof: roster.ProofHandoff}, under, nil
	}
	found, err = b.roster.For(ctx, who, named)
	return found, under, err
}

// userOf is the user as rules see it.
func userOf(b roster.Behalf) policy.User {
	of := b.User
	if of == nil {
		return policy.User{}
	}
	return policy.User{
		ID: of.ID, Name: of.Name, Email: of.Email, Scopes: of.Scopes, Limits: of.Limits, Suspended: of.Suspended,
		Verified: b.Claimed == "", Proof: string(b.Proof),
	}
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
func decide(ctx context.Context, rules inForceFor, in policy.Input) policy.Verdict {
	switch {
	case in.Refused != nil:
		return *in.Refused
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
	case rules.Server == nil:
		return policy.Verdict{
			Action: policy.Block, Rule: policy.DefaultRule, Failed: true,
			Reason: "There is no policy in force that can be read, so everything is blocked. An admin " +
				"can apply one with `signalbox policy apply`.",
		}
	case rules.broken != (Layer{}):
		return policy.Verdict{
			Action: policy.Block, Rule: policy.DefaultRule, Layer: rules.broken.name(), Failed: true,
			Reason: "What is in force as " + rules.broken.phrase() + " cannot be read, so everything is blocked where it " +
				"applies. An admin can apply another with `signalbox policy apply`.",
		}
	}
	return rules.Decide(ctx, in)
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
		if e.Kind == applied || e.Kind == layered || strings.HasPrefix(e.Kind, "state.") {
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
	v, err := newest(b.ledger.Prover(ctx), Layer{})
	if err != nil {
		return 0, err
	}
	next := b.inForce
	if v.Number != next.number {
		next.number = v.Number
		if next.policy, err = b.open(ctx, Layer{}, v); err != nil {
			return 0, err
		}
	}
	if err := b.loadLayers(b.ledger.Prover(ctx), &next, seq); err != nil {
		return 0, err
	}
	if counters := next.counters(); next.recent == nil || !next.recent.has(counters) {
		next.recent = newTally(counters)
		oldest, err := b.handoff.OldestBudget(ctx)
		if err != nil {
			return 0, err
		}
		if err := b.fill(ctx, next.recent, seq, oldest); err != nil {
			return 0, err
		}
		next.recent.add(seq, "", nil, time.Time{})
	}
	seq = min(seq, next.recent.upTo()) // a transaction may have counted further than the versions were read
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
func (b *Book) open(ctx context.Context, l Layer, v Version) (*policy.Policy, error) {
	if v.Number == 0 {
		return nil, nil
	}
	source, err := b.source(ctx, l, v)
	if err != nil {
		return nil, err
	}
	p, err := b.parse(source)
	if err != nil {
		b.log.Error("the policy cannot be read; everything is blocked where it applies, until another is applied", "layer",
			l.key(), "version", v.Number, "error", err.Error())
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

// fill counts the entries up to seq, as far back as the longest window reaches, and the oldest handoff with a budget,
// which the entry with this number has opened; 0 if there is none.
func (b *Book) fill(ctx context.Context, t *tally, seq, oldest int64) error {
	from := seq
	if len(t.counters) > 0 {
		before, err := b.ledger.SeqBefore(ctx, t.reach(b.now()))
		if err != nil {
			return err
		}
		from = before
	}
	if oldest > 0 {
		b.budgets.Store(true)
		from = min(from, oldest-1)
	}
	if from >= seq {
		return nil
	}
	if seq-from > 10*step {
		b.log.Info("reading entries for the counters of the policy", "entries", seq-from, "since", t.reach(b.now()))
	}
	for p := range b.pages(ctx, from, seq) {
		if p.err != nil {
			return p.err
		}
		for i := range p.entries {
			e := &p.entries[i]
			t.add(e.entry.Seq, e.workspace(), e.reading.facts(), e.entry.At)
		}
	}
	return ctx.Err()
}

// count adds what an entry says.
func (b *Book) count(t *tally, e *ledger.Entry) {
	if e.Seq <= t.upTo() {
		return
	}
	if e.Kind == handoff.Opened && handoff.HasBudget(e) {
		b.budgets.Store(true)
	}
	if len(t.counters) == 0 && !b.budgets.Load() || b.readers[e.Kind] == nil {
		t.add(e.Seq, "", nil, e.At)
		return
	}
	read := b.readEntry(e)
	t.add(e.Seq, read.workspace(), read.reading.facts(), e.At)
}

// Policy is the policy in force with its number, nil if there is none that can be read. It is
// for protocols that look at the rules before they ask (Policy.Reads); another version may be
// in force a moment later.
func (b *Book) Policy() (int64, *policy.Policy) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.inForce.number, b.inForce.policy
}

// InForce is the number of the version of the server's layer that decides on this node, 0 before there is one.
func (b *Book) InForce() int64 { return b.InForceOf(Layer{}) }

// InForceOf is the number of the version of a layer that decides on this node, 0 if there is none.
func (b *Book) InForceOf(l Layer) int64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.inForce.numberOf(l)
}

func (in *inForce) numberOf(l Layer) int64 {
	if l == (Layer{}) {
		return in.number
	}
	return in.layers[l].version.Number
}

// await waits until at least this version of a layer is in force on this node, or ctx ends.
func (b *Book) await(ctx context.Context, l Layer, number int64) error {
	for {
		b.mu.RLock()
		now, moved := b.inForce.numberOf(l), b.moved
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
