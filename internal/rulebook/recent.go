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
	counts  []policy.Count
	longest time.Duration

	mu     sync.RWMutex
	seq    int64               // the entry that it has come to
	agents map[string][]series // one for each of counts
	last   time.Time           // of the newest entry
	added  int
}

// series is one counter of one agent over one window.
type series struct {
	slots  [parts + 1]float64
	newest int64 // the number of the slot that time has come to
}

// newTally counts from nothing; fill adds the past.
func newTally(counts []policy.Count) *tally {
	t := &tally{counts: counts, agents: map[string][]series{}}
	for _, c := range counts {
		t.longest = max(t.longest, c.Window)
	}
	return t
}

// has reports whether the tally counts all of these, so that it can be kept. For none it is
// false: a tally that nobody reads is dropped.
func (t *tally) has(counts []policy.Count) bool {
	return len(counts) > 0 && !slices.ContainsFunc(counts, func(c policy.Count) bool {
		return !slices.Contains(t.counts, c)
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
// idle agents.
func (t *tally) add(seq int64, facts []Fact, at time.Time) {
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
		for i, c := range t.counts {
			if f.countsFor(c.What) {
				t.seriesOf(ownerOf(c.What, f.Belongs))[i].add(slot(at, c.Window), f.N)
			}
		}
	}
	t.added++
	if t.added%10_000 == 0 {
		t.forget(at)
	}
}

// countsFor reports whether a fact adds to a counter.
func (f *Fact) countsFor(counter string) bool {
	what, _ := splitCounter(counter)
	return what == f.What
}

// splitCounter takes the scope from the name of a counter, as in actions.tool. The name of a rule may
// have dots of its own.
func splitCounter(counter string) (what, scope string) {
	i := strings.LastIndexByte(counter, '.')
	if i < 0 || strings.HasPrefix(counter, policy.RuleCount("")) {
		return counter, ""
	}
	return counter[:i], counter[i+1:]
}

// Belongs is what something that is counted belongs to. A protocol leaves empty what it does not know.
type Belongs struct {
	Agent   string // its id
	Tool    string
	Session string
	User    string // the id of the user on whose behalf it is; the rulebook fills it in
	Tier    policy.Tier
}

// ownerOf is the key under which a counter is kept: the agent, one of its tools, sessions or tiers, or the user
// whose agent it is. An agent that is nobody's counts for itself alone.
func ownerOf(counter string, b Belongs) string {
	switch _, scope := splitCounter(counter); {
	case scope == "tool":
		return b.Agent + "\x00tool\x00" + b.Tool
	case scope == "session":
		return b.Agent + "\x00session\x00" + b.Session
	case scope == "tier":
		return b.Agent + "\x00tier\x00" + string(b.Tier)
	case scope == "user" && b.User != "":
		return "\x00user\x00" + b.User
	}
	return b.Agent
}

// seriesOf is the counters of an agent, made on first use. The caller holds the lock.
func (t *tally) seriesOf(agent string) []series {
	if t.agents[agent] == nil {
		t.agents[agent] = make([]series, len(t.counts))
	}
	return t.agents[agent]
}

// forget drops agents that did nothing for as long as anything looks back.
func (t *tally) forget(now time.Time) {
	for agent, all := range t.agents {
		idle := true
		for i, c := range t.counts {
			idle = idle && all[i].newest < slot(now, c.Window)-parts
		}
		if idle {
			delete(t.agents, agent)
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

// count is the sum of what is not older than the window.
func (t *tally) count(owner, what string, window time.Duration, now time.Time) float64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.last.After(now) {
		now = t.last // a clock that was set back does not make things unhappen
	}
	for i, c := range t.counts {
		if all := t.agents[owner]; all != nil && c.What == what && c.Window == window {
			return all[i].since(slot(now, window) - parts)
		}
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
	at      *tally
	pending *tally // what is counted beside it, nil for nothing; see Recheck
	of      Belongs
	now     time.Time
	seen    policy.Counts
}

// Count implements policy.Recent.
func (l *countReader) Count(what string, window time.Duration) float64 {
	n := l.count(what, window)
	if l.seen == nil {
		l.seen = policy.Counts{}
	}
	l.seen.Set(what, window, n)
	return n
}

func (l *countReader) count(what string, window time.Duration) float64 {
	owner := ownerOf(what, l.of)
	if l.pending == nil {
		return l.at.count(owner, what, window, l.now)
	}
	now := l.now
	for _, t := range []*tally{l.at, l.pending} {
		if t.newest().After(now) { // both count the same window
			now = t.newest()
		}
	}
	return l.at.count(owner, what, window, now) + l.pending.count(owner, what, window, now)
}
