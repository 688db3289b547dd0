package rulebook

import (
	"slices"
	"strings"
	"sync"
	"time"

	"signalbox/internal/policy"
)

// parts is how many parts a window is divided into. One more is kept, so that a count never
// covers less than the window.
const parts = 60

// tally counts what agents did, in the windows that the rules in force read. Its memory is a
// few hundred bytes for each agent and counter, whatever happens: counts, not events, are
// kept.
type tally struct {
	counters []counter
	index    map[counter]int  // where it is in counters
	byWhat   map[string][]int // those that a fact adds to, by their name without its scope
	longest  time.Duration

	mu    sync.RWMutex
	seq   int64 // the entry that it has come to
	all   map[ofCounter]*series
	spent map[string]policy.Budget // by the id of a handoff
	last  time.Time                // of the newest entry
	added int
}

// counter is what is counted: for every agent, or for those of the workspace whose layer reads it. A layer must not
// cost the agents of others memory.
type counter struct {
	policy.Count
	workspace string
}

// ofCounter is one counter of one owner (ownerOf).
type ofCounter struct {
	owner string
	i     int // in counters
}

// series is one counter of one agent over one window.
type series struct {
	slots  [parts + 1]float64
	newest int64 // the number of the slot that time has come to
}

// newTally counts from nothing; fill adds the past.
func newTally(counters []counter) *tally {
	t := &tally{
		counters: counters, index: map[counter]int{}, byWhat: map[string][]int{}, all: map[ofCounter]*series{},
		spent: map[string]policy.Budget{},
	}
	for i, c := range counters {
		t.longest = max(t.longest, c.Window)
		t.index[c] = i
		what, _ := splitCounter(c.What)
		t.byWhat[what] = append(t.byWhat[what], i)
	}
	return t
}

// empty is a tally of the same counters that has counted nothing.
func (t *tally) empty() *tally {
	return &tally{
		counters: t.counters, index: t.index, byWhat: t.byWhat, longest: t.longest, all: map[ofCounter]*series{},
		spent: map[string]policy.Budget{},
	}
}

// has reports whether the tally counts all of these, so that it can be kept. For none it is
// false: a tally that nobody reads is dropped.
func (t *tally) has(counters []counter) bool {
	return len(counters) > 0 && !slices.ContainsFunc(counters, func(c counter) bool {
		_, counted := t.index[c]
		return !counted
	})
}

// reach is how far back the counters look at a moment.
func (t *tally) reach(at time.Time) time.Time { return at.Add(-t.longest - t.longest/parts) }

// slot is the number of the part of a window that a moment falls into.
func slot(at time.Time, window time.Duration) int64 { return at.UnixNano() / (int64(window) / parts) }

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
	if t.seq = seq; len(facts) == 0 {
		return
	}
	t.last = at
	for _, f := range facts {
		for _, handoffID := range f.Handoffs {
			t.spent[handoffID] = f.addTo(t.spent[handoffID])
		}
		for _, i := range t.byWhat[f.What] {
			if c := &t.counters[i]; c.workspace == "" || workspace == "" || c.workspace == workspace {
				t.seriesOf(ownerOf(c.What, f.Belongs), i).add(slot(at, c.Window), f.N)
			}
		}
	}
	t.added++
	if t.added%10_000 == 0 {
		t.forget(at)
	}
}

// addTo adds what a fact uses of a budget.
func (f *Fact) addTo(spent policy.Budget) policy.Budget {
	switch f.What {
	case allowed:
		spent.Calls += int64(f.N)
	case "tokens":
		spent.Tokens += int64(f.N)
	case "cost":
		spent.CostUSD += f.N
	}
	return spent
}

// Spent is what was used of the budget of a handoff that is open, by it and all below it, as far as this node has
// counted.
func (b *Book) Spent(handoffID string) policy.Budget {
	b.mu.RLock()
	recent := b.inForce.recent
	b.mu.RUnlock()
	if recent == nil {
		return policy.Budget{}
	}
	return recent.spentBy(handoffID)
}

// spentBy is what was used of a handoff's budget.
func (t *tally) spentBy(handoffID string) policy.Budget {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.spent[handoffID]
}

// splitCounter takes the scope from the name of a counter, as in actions.tool or actions.user.tool. The name of a rule
// may have dots of its own.
func splitCounter(counter string) (what, scope string) {
	if strings.HasPrefix(counter, policy.RuleCount("")) {
		return counter, ""
	}
	what, scope, _ = strings.Cut(counter, ".")
	return what, scope
}

// Belongs is what something that is counted belongs to. A protocol leaves empty what it does not know.
type Belongs struct {
	Agent   string // its id
	Tool    string
	Session string
	User    string // the id of the user on whose behalf it is; the rulebook fills it in
	Tier    policy.Tier
	// Handoff is the id of the one under which it happened. The rulebook fills in Handoffs, which are it and all above
	// it: their budgets are used.
	Handoff  string
	Handoffs []string
}

// ownerOf is the key under which a counter is kept: the agent or the user whose agent it is, or one of their tools,
// sessions or tiers. An agent that is nobody's counts for itself alone.
func ownerOf(counter string, b Belongs) string {
	_, scope := splitCounter(counter)
	owner := b.Agent
	if of, narrower, _ := strings.Cut(scope, "."); of == "user" {
		if scope = narrower; b.User != "" {
			owner = "\x00user\x00" + b.User
		}
	}
	switch scope {
	case "tool":
		return owner + "\x00tool\x00" + b.Tool
	case "session":
		return owner + "\x00session\x00" + b.Session
	case "tier":
		return owner + "\x00tier\x00" + string(b.Tier)
	}
	return owner
}

// seriesOf is a counter of an owner, made on first use. The caller holds the lock.
func (t *tally) seriesOf(owner string, i int) *series {
	key := ofCounter{owner, i}
	if t.all[key] == nil {
		t.all[key] = &series{}
	}
	return t.all[key]
}

// forget drops what did not change for as long as its window.
func (t *tally) forget(now time.Time) {
	for key, s := range t.all {
		if s.newest < slot(now, t.counters[key.i].Window)-parts {
			delete(t.all, key)
		}
	}
}

// add adds to a slot, after clearing the slots that time has passed since the newest one. The
// slots are a ring: slot number N is at N modulo their number.
func (s *series) add(number int64, n float64) {
	if number > s.newest+parts { // all that is kept is older than the window
		*s = series{newest: number}
	}
	for s.newest < number {
		s.newest++
		s.slots[s.newest%(parts+1)] = 0
	}
	s.slots[number%(parts+1)] += n
}

// newest is the time of the newest entry that was counted.
func (t *tally) newest() time.Time {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.last
}

// count is the sum of what is not older than the window, for an agent of a workspace.
func (t *tally) count(owner, workspace string, c policy.Count, now time.Time) float64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.last.After(now) {
		now = t.last // a clock that was set back does not make things unhappen
	}
	i, counted := t.index[counter{c, ""}]
	if !counted {
		i, counted = t.index[counter{c, workspace}]
	}
	if s := t.all[ofCounter{owner, i}]; counted && s != nil {
		return s.since(slot(now, c.Window) - parts)
	}
	return 0
}

// since adds up the slots from a number on. Slots older than those that are kept add nothing.
func (s *series) since(number int64) (sum float64) {
	for n := max(number, s.newest-parts); n <= s.newest; n++ {
		sum += s.slots[n%(parts+1)]
	}
	return sum
}

// countReader is what a policy sees of the counters of one agent in one decision. It notes the
// counters that were read and their values, for the record, so that a replay sees the same.
type countReader struct {
	at        *tally
	pending   *tally // what is counted beside it, nil for nothing; see Recheck
	of        Belongs
	workspace string
	now       time.Time
	seen      policy.Counts
}

// Count implements policy.Recent.
func (l *countReader) Count(what string, window time.Duration) float64 {
	n := l.count(policy.Count{What: what, Window: window})
	if l.seen == nil {
		l.seen = policy.Counts{}
	}
	l.seen.Set(what, window, n)
	return n
}

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
		hops[i].Spent = l.at.spentBy(hops[i].ID)
		if l.pending != nil {
			more := l.pending.spentBy(hops[i].ID)
			hops[i].Spent.Calls += more.Calls
			hops[i].Spent.Tokens += more.Tokens
			hops[i].Spent.CostUSD += more.CostUSD
		}
	}
	return hops
}

func (l *countReader) count(c policy.Count) float64 {
	owner := ownerOf(c.What, l.of)
	if l.pending == nil {
		return l.at.count(owner, l.workspace, c, l.now)
	}
	now := l.now
	for _, t := range []*tally{l.at, l.pending} {
		if t.newest().After(now) { // both count the same window
			now = t.newest()
		}
	}
	return l.at.count(owner, l.workspace, c, now) + l.pending.count(owner, l.workspace, c, now)
}
