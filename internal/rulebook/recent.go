package rulebook

import (
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/policy"
	"signalbox/internal/policy/window"
)

// parts is how many parts a window is divided into. One more is kept, so that a count never
// covers less than the window.
const parts = 60

// maxOwners is how many runs, decks, sessions or tools of one agent are counted apart by one counter. Agents name them
// as they like; all beyond count together, so that inventing more uses neither memory nor gets past a budget.
const maxOwners = 10_000

// tally counts what agents did, in the windows that the rules in force read. Its memory is a
// few hundred bytes for each agent and counter, whatever happens: counts, not events, are
// kept. Beside them it keeps what is reserved for calls under way (held.go).
//
// Money is kept in billionths of a dollar: whole numbers, which add up to the same in any order.
type tally struct {
	counters []tallied
	index    map[counter]int  // where it is in counters
	byWhat   map[string][]int // those that a fact adds to, by their name without its scope

	mu     sync.RWMutex
	seq    int64 // the entry that it has come to
	all    map[ofCounter]*series
	owners map[ofCounter]int // how many owners an agent has made up for a counter, by the agent's id
	spent  map[string]used   // by the id of a handoff
	last   time.Time         // of the newest entry
	added  int

	held     map[string]*held
	due      dueHeap
	reserved map[ofCounter]int64
	heldBy   map[string]reservedSum // by the id of a handoff

	// Of a tally that counts what is not committed yet, see pending: the tally that it stands beside, and what is released
	// of the reservations there.
	beside   *tally
	released releases
}

// counter is what is counted: for every agent, or for those of the workspace whose layer reads it. A layer must not
// cost the agents of others memory.
type counter struct {
	policy.Count
	workspace string
}

// tallied is a counter with what its name says.
type tallied struct {
	counter
	scope   string
	claimed bool // agents make up its owners
	money   bool // it counts in billionths of a dollar
}

// about reports whether it counts what is done in a workspace; what is done in none counts for all.
func (c *tallied) about(workspace string) bool {
	return c.workspace == "" || workspace == "" || c.workspace == workspace
}

// slot is the number of the part of the window that a moment falls into.
func (c *tallied) slot(at time.Time) int64 {
	if c.Window.Calendar() {
		return c.Window.Number(at)
	}
	return at.UnixNano() / (int64(c.Window) / parts)
}

// first is the number of the first part that counts at a moment.
func (c *tallied) first(at time.Time) int64 {
	if c.Window.Calendar() {
		return c.slot(at)
	}
	return c.slot(at) - parts
}

// ofCounter is one counter of one owner (ownerOf).
type ofCounter struct {
	owner string
	i     int // in counters
}

// used is what was used of the budget of a handoff. Sums that are too large to be exact stay large.
type used struct{ calls, tokens, nanos float64 }

// reservedSum is what is reserved of it.
type reservedSum struct{ tokens, nanos int64 }

// series is one counter of one owner over one window.
type series struct {
	slots  []float64 // a ring: slot number N is at N modulo their number
	newest int64     // the number of the slot that time has come to
	agent  string    // who has made the owner up, "" for nobody
}

// newTally counts from nothing; fill adds the past.
func newTally(counters []counter) *tally {
	t := &tally{index: map[counter]int{}, byWhat: map[string][]int{}}
	for i, c := range counters {
		what, scope := splitCounter(c.What)
		t.counters = append(t.counters, tallied{c, scope, claimedScope(scope), what == "cost"})
		t.index[c] = i
		t.byWhat[what] = append(t.byWhat[what], i)
	}
	return t.clear()
}

// clear makes the tally one that has counted nothing.
func (t *tally) clear() *tally {
	t.all, t.owners, t.spent = map[ofCounter]*series{}, map[ofCounter]int{}, map[string]used{}
	t.held, t.reserved, t.heldBy = map[string]*held{}, map[ofCounter]int64{}, map[string]reservedSum{}
	return t
}

// aside is a tally of the same counters that has counted nothing, for what may come to nothing.
func (t *tally) aside() *tally {
	other := &tally{
		counters: t.counters, index: t.index, byWhat: t.byWhat, beside: t, released: releases{},
	}
	return other.clear()
}

// has reports whether the tally counts all of these, so that it can be kept. For none it is
// false: a tally that nobody reads is dropped.
func (t *tally) has(counters []counter) bool {
	return len(counters) > 0 && !slices.ContainsFunc(counters, func(c counter) bool {
		_, counted := t.index[c]
		return !counted
	})
}

// reach is how far back the counters look at a moment, and what may be reserved.
func (t *tally) reach(at time.Time) time.Time {
	oldest := at.Add(-reserveFor)
	for i := range t.counters {
		w := t.counters[i].Window
		begin := w.Begin(at)
		if !w.Calendar() {
			begin = begin.Add(-time.Duration(w) / parts)
		}
		if begin.Before(oldest) {
			oldest = begin
		}
	}
	return oldest
}

// upTo is the entry that the tally has come to.
func (t *tally) upTo() int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.seq
}

// add counts the facts of an entry at the time of the entry, unless it was counted before: the goroutine that
// follows the ledger and transactions that need exact counts (Recheck) may both come to it. Now and then it drops
// idle agents. workspace is that of the entry; one of none counts for all.
func (t *tally) add(seq int64, workspace string, facts []Fact, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seq <= t.seq {
		return
	}
	if !at.IsZero() && at.Before(t.last) {
		t.stepBack(at)
	}
	if t.seq = seq; len(facts) == 0 {
		return
	}
	t.last = at
	for i := range facts {
		t.addFact(&facts[i], workspace, at)
	}
	t.added++
	if t.added%10_000 == 0 {
		t.forget(at)
	}
}

// addFact counts one fact.
func (t *tally) addFact(f *Fact, workspace string, at time.Time) {
	if f.Workspace == "" {
		f.Workspace = workspace
	}
	if f.Release != "" {
		t.release(f.Release, f.Agent)
	}
	if f.Reserve != nil {
		t.hold(*f.Reserve, &f.Belongs, workspace)
	}
	n := f.N
	if f.What == "cost" {
		n = math.Round(n * 1e9)
	}
	for _, handoffID := range f.Handoffs {
		t.spent[handoffID] = t.spent[handoffID].plus(f.What, n)
	}
	for _, i := range t.byWhat[f.What] {
		if c := &t.counters[i]; c.about(workspace) {
			if _, s := t.seriesOf(&f.Belongs, i); s != nil {
				s.add(c.slot(at), n)
			}
		}
	}
}

// plus adds what a fact uses of a budget.
func (u used) plus(what string, n float64) used {
	switch what {
	case allowed:
		u.calls += n
	case "tokens":
		u.tokens += n
	case "cost":
		u.nanos += n
	}
	return u
}

// Spent is what was used of the budget of a handoff that is open, by it and all below it, as far as this node has
// counted. What is reserved is not in it.
func (b *Book) Spent(handoffID string) policy.Budget {
	b.mu.RLock()
	recent := b.inForce.recent
	b.mu.RUnlock()
	if recent == nil {
		return policy.Budget{}
	}
	u, _ := recent.spentBy(handoffID, time.Time{}, nil)
	return u.budget()
}

// budget is the same as others see it.
func (u used) budget() policy.Budget {
	whole := func(n float64) int64 { return int64(min(n, math.MaxInt64/2)) }
	return policy.Budget{Calls: whole(u.calls), Tokens: whole(u.tokens), CostUSD: u.nanos / 1e9}
}

// spentBy is what was used of a handoff's budget, and what is reserved of it, but for what is released beside it.
func (t *tally) spentBy(handoffID string, now time.Time, released releases) (used, reservedSum) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.expired(now) {
		t.expire(now)
	}
	sum := t.heldBy[handoffID]
	if len(released) > 0 && sum != (reservedSum{}) {
		sum.tokens -= t.without(released, func(h *held) int64 { return h.partOf(handoffID, h.Tokens) })
		sum.nanos -= t.without(released, func(h *held) int64 { return h.partOf(handoffID, h.CostNano) })
	}
	return t.spent[handoffID], sum
}

// key is where a counter of an owner is kept: apart, or with all that its agent has made up beyond maxOwners.
func (t *tally) key(of *Belongs, i int) ofCounter {
	c := &t.counters[i]
	key := ofCounter{ownerOf(c.scope, of), i}
	if !c.claimed || key.owner == "" || t.all[key] != nil {
		return key
	}
	mine := ofCounter{of.Agent, i}
	n := t.owners[mine]
	if t.beside != nil {
		there, more := t.beside.known(key, mine)
		if there {
			return key
		}
		n += more
	}
	if n >= maxOwners {
		key.owner = "\x00others\x00" + of.Agent
	}
	return key
}

// known reports whether a counter is kept, and how many its agent has made up.
func (t *tally) known(key, mine ofCounter) (there bool, n int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.all[key] != nil, t.owners[mine]
}

// seriesOf is a counter of an owner, made on first use; nil if it does not count for the owner. The caller holds the
// lock.
func (t *tally) seriesOf(of *Belongs, i int) (ofCounter, *series) {
	key := t.key(of, i)
	if s := t.all[key]; s != nil || key.owner == "" {
		return key, s
	}
	c := &t.counters[i]
	s := &series{slots: make([]float64, parts+1)}
	if c.Window.Calendar() {
		s.slots = make([]float64, 1)
	}
	if c.claimed {
		s.agent = of.Agent
		t.owners[ofCounter{s.agent, i}]++
	}
	t.all[key] = s
	return key, s
}

// forget drops what did not change for as long as its window, and for which nothing is reserved.
func (t *tally) forget(now time.Time) {
	for key, s := range t.all {
		if s.newest >= t.counters[key.i].first(now) || t.reserved[key] != 0 {
			continue
		}
		delete(t.all, key)
		if mine := (ofCounter{s.agent, key.i}); s.agent != "" {
			t.owners[mine]--
			if t.owners[mine] == 0 {
				delete(t.owners, mine)
			}
		}
	}
}

// stepBack follows time to where it was healed (LED-36). What was counted ahead of it counts as done at that moment,
// so that nobody gets a window anew, nor waits until the time comes again that was wrong.
func (t *tally) stepBack(at time.Time) {
	t.last = at
	for key, s := range t.all {
		number, size := t.counters[key.i].slot(at), int64(len(s.slots))
		if s.newest <= number {
			continue
		}
		ahead := s.since(number)
		for n := max(number, s.newest-size+1); n <= s.newest; n++ {
			s.slots[n%size] = 0
		}
		s.newest = number
		s.slots[number%size] = ahead
	}
}

// add adds to a slot, after clearing the slots that time has passed since the newest one. Times go back only at a step.
func (s *series) add(number int64, n float64) {
	size := int64(len(s.slots))
	if number >= s.newest+size { // all that is kept is older than the window
		clear(s.slots)
		s.newest = number
	}
	for s.newest < number {
		s.newest++
		s.slots[s.newest%size] = 0
	}
	s.slots[number%size] += n
}

// since adds up the slots from a number on. Slots older than those that are kept add nothing.
func (s *series) since(number int64) (sum float64) {
	size := int64(len(s.slots))
	for n := max(number, s.newest-size+1); n <= s.newest; n++ {
		sum += s.slots[n%size]
	}
	return sum
}

// newest is the time of the newest entry that was counted.
func (t *tally) newest() time.Time {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.last
}

// count is the sum of what is not older than the window, for what belongs to somebody, and what is reserved beside it,
// but for what is released beside the tally. Money is in billionths of a dollar; inUnit has it in dollars.
func (t *tally) count(of *Belongs, c policy.Count, now time.Time, released releases) (sum, reserved float64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.last.After(now) {
		now = t.last // a clock that was set back does not make things unhappen
	}
	if t.expired(now) {
		t.expire(now)
	}
	i, counted := t.index[counter{c, ""}]
	if !counted {
		i, counted = t.index[counter{c, of.Workspace}]
	}
	if !counted {
		return 0, 0
	}
	key := t.key(of, i)
	if s := t.all[key]; s != nil {
		sum = s.since(t.counters[i].first(now))
	}
	if n := t.reserved[key]; n != 0 {
		if len(released) > 0 {
			n -= t.without(released, func(h *held) int64 { return h.partAt(key, &t.counters[i]) })
		}
		reserved = float64(n)
	}
	return sum, reserved
}

// inUnit is a number of a counter as rules see it.
func inUnit(c policy.Count, n float64) float64 {
	if n != 0 && strings.HasPrefix(c.What, "cost") { // no other counter begins so
		return n / 1e9
	}
	return n
}

// countReader is what a policy sees of the counters of one agent in one decision. It notes the
// counters that were read and their values, for the record, so that a replay sees the same.
type countReader struct {
	at       *tally
	pending  *tally // what is counted beside it, nil for nothing; see Recheck
	own      string // what is reserved for the call itself, which does not count; "" for nothing
	of       Belongs
	now      time.Time
	seen     policy.Counts
	reserved policy.Counts // how much of what was seen is reserved; what is nothing is left out
}

// Count implements policy.Recent.
func (l *countReader) Count(what string, w window.Window) float64 {
	n, reserved := l.count(policy.Count{What: what, Window: w})
	if l.seen == nil {
		l.seen = policy.Counts{}
	}
	l.seen.Set(what, w, n)
	if reserved > 0 {
		if l.reserved == nil {
			l.reserved = policy.Counts{}
		}
		l.reserved.Set(what, w, reserved)
	}
	return n
}

// Reserved implements recent.Reserving.
func (l *countReader) Reserved(what string, w window.Window) float64 {
	return l.reserved.Count(what, w)
}

// AnyReserved implements recent.Reserving.
func (l *countReader) AnyReserved() bool { return len(l.reserved) > 0 }

// spend is a chain with what was used of its budgets.
func (l *countReader) spend(hops []policy.Hop) []policy.Hop {
	if l.at == nil {
		return hops // nothing is counted yet, and everything blocked
	}
	hops = slices.Clone(hops)
	for i := range hops {
		if (hops[i].Budget == policy.Budget{}) {
			continue
		}
		u, reserved := l.at.spentBy(hops[i].ID, l.now, l.gone())
		if l.pending != nil {
			more, moreReserved := l.pending.spentBy(hops[i].ID, l.now, nil)
			u = used{u.calls + more.calls, u.tokens + more.tokens, u.nanos + more.nanos}
			reserved = reservedSum{reserved.tokens + moreReserved.tokens, reserved.nanos + moreReserved.nanos}
		}
		all := used{u.calls, u.tokens + float64(reserved.tokens), u.nanos + float64(reserved.nanos)}
		hops[i].Spent = all.budget()
		hops[i].Reserved = policy.Budget{Tokens: reserved.tokens, CostUSD: float64(reserved.nanos) / 1e9}
	}
	return hops
}

// gone are the reservations that do not count: those that end beside the tally, and that of the call itself.
func (l *countReader) gone() (gone releases) {
	if l.pending != nil {
		gone = l.pending.released
	}
	if l.own != "" {
		if gone = maps.Clone(gone); gone == nil {
			gone = releases{}
		}
		gone[release{l.own, l.of.Agent}] = true
	}
	return gone
}

// count is a counter with what is reserved, and that alone.
func (l *countReader) count(c policy.Count) (n, reserved float64) {
	if l.pending == nil {
		n, reserved = l.at.count(&l.of, c, l.now, l.gone())
		return inUnit(c, n+reserved), inUnit(c, reserved)
	}
	now := l.now
	for _, t := range []*tally{l.at, l.pending} {
		if t.newest().After(now) { // both count the same window
			now = t.newest()
		}
	}
	n, reserved = l.at.count(&l.of, c, now, l.gone())
	more, moreReserved := l.pending.count(&l.of, c, now, nil)
	n, reserved = n+more, reserved+moreReserved
	return inUnit(c, n+reserved), inUnit(c, reserved)
}
