package rulebook

import (
	"container/heap"
	"math"
	"slices"
	"time"

	"signalbox/internal/id"
	"signalbox/internal/policy"
)

// reserveFor is how long something stays reserved for a call of which nothing is heard: longer than models answer.
// It ends what a server that was killed had under way.
const reserveFor = 15 * time.Minute

// Reservation is what a call that is under way may use at most. It counts in recent.cost and recent.tokens of all
// whom the call belongs to, and in the budgets of its handoffs, until a Fact releases it or its time has passed. It is
// made with the decision that lets the call go on (Reserve), or when an approved one goes on (Book.ReserveFor), and
// is stored with the entry about that. Its JSON is stored for ever: members are only added.
type Reservation struct {
	ID       string `json:"id"` // unique for the call
	CostNano int64  `json:"cost_nano,omitzero"`
	Tokens   int64  `json:"tokens,omitzero"`
	Until    int64  `json:"until"` // microseconds
}

// The most that one call reserves, far above any real one: 10,000 dollars. Any number of them adds up without overflow.
const (
	maxReservedNano   = 10_000 * 1e9
	maxReservedTokens = 1e13
)

// reservation is one for calls that may use this much; nil if that is nothing.
func reservation(usd float64, tokens int64, now time.Time) *Reservation {
	r := &Reservation{
		CostNano: int64(min(max(math.Ceil(usd*1e9), 0), maxReservedNano)), Tokens: min(max(tokens, 0), maxReservedTokens),
		Until: now.Add(reserveFor).UnixMicro(),
	}
	if usd != usd { // not a number
		r.CostNano = maxReservedNano
	}
	if r.CostNano == 0 && r.Tokens == 0 {
		return nil
	}
	r.ID = id.New("reserve")
	return r
}

// ReserveFor is what to reserve for a call at prompt that goes on without a decision, since a person has approved it:
// nil if there is nothing to reserve, or nobody counts it. The caller stores it in the entry that lets the call go on,
// and its Reader returns it as a Fact.
func (b *Book) ReserveFor(e *policy.Event) *Reservation {
	b.mu.RLock()
	recent := b.inForce.recent
	b.mu.RUnlock()
	if recent == nil || len(recent.byWhat["cost"])+len(recent.byWhat["tokens"]) == 0 && !b.budgets.Load() {
		return nil
	}
	return reservation(e.EstimateUSD, e.EstimateTokens, b.now())
}

// reserve adds to the record of a decision what the calls that it lets go on may use: at prompt, if they are allowed.
// all are the decisions about parts of the same request, of which this is one.
func (d *Decision) reserve(all []Decision) {
	d.Record.Reserve = nil
	if d.Action != policy.Allow || d.Record.Event.Point != policy.OnPrompt {
		return
	}
	var usd, tokens float64
	for i := range all {
		usd += max(0, all[i].Record.Event.EstimateUSD)
		tokens += max(0, float64(all[i].Record.Event.EstimateTokens))
	}
	d.Record.Reserve = reservation(usd, int64(min(tokens, maxReservedTokens)), time.UnixMicro(d.Record.Now))
}

// held is a reservation that a tally counts.
type held struct {
	Reservation
	agent    string
	counts   []ofCounter // where it counts
	handoffs []string
	place    int // in tally.due
}

// amount is how much it reserves of what a counter counts, in the unit of the tally.
func (h *held) amount(c *tallied) int64 {
	if c.money {
		return h.CostNano
	}
	return h.Tokens
}

// partAt is how much it reserves under a key.
func (h *held) partAt(key ofCounter, c *tallied) int64 {
	if slices.Contains(h.counts, key) {
		return h.amount(c)
	}
	return 0
}

// partOf is an amount if it counts for a handoff.
func (h *held) partOf(handoffID string, amount int64) int64 {
	if slices.Contains(h.handoffs, handoffID) {
		return amount
	}
	return 0
}

// hold counts a reservation. One that is known is not counted twice. The caller holds the lock.
func (t *tally) hold(r Reservation, of *Belongs, workspace string) {
	if t.held[r.ID] != nil || r.ID == "" {
		return
	}
	r.CostNano, r.Tokens = min(max(r.CostNano, 0), maxReservedNano), min(max(r.Tokens, 0), maxReservedTokens)
	h := &held{Reservation: r, agent: of.Agent, handoffs: of.Handoffs}
	for _, what := range []string{"cost", "tokens"} {
		for _, i := range t.byWhat[what] {
			if !t.counters[i].about(workspace) {
				continue
			}
			if key, s := t.seriesOf(of, i); s != nil {
				h.counts = append(h.counts, key)
			}
		}
	}
	t.held[r.ID] = h
	heap.Push(&t.due, h)
	t.change(h, 1)
}

// release ends a reservation of an agent. One that is not known, or is another agent's, changes nothing; a tally of
// what is not committed yet notes it for the one beside it.
func (t *tally) release(reserve, agent string) {
	h := t.held[reserve]
	switch {
	case h != nil && h.agent == agent:
		t.drop(h)
	case h == nil && t.released != nil:
		t.released[release{reserve, agent}] = true
	}
}

// drop ends a reservation.
func (t *tally) drop(h *held) {
	heap.Remove(&t.due, h.place)
	delete(t.held, h.ID)
	t.change(h, -1)
}

// change adds a reservation to the sums, or takes it off.
func (t *tally) change(h *held, sign int64) {
	for _, key := range h.counts {
		if t.reserved[key] += sign * h.amount(&t.counters[key.i]); t.reserved[key] == 0 {
			delete(t.reserved, key)
		}
	}
	for _, handoffID := range h.handoffs {
		sum := t.heldBy[handoffID]
		sum.nanos, sum.tokens = sum.nanos+sign*h.CostNano, sum.tokens+sign*h.Tokens
		if t.heldBy[handoffID] = sum; sum == (reservedSum{}) {
			delete(t.heldBy, handoffID)
		}
	}
}

// expired reports whether there are reservations whose time has passed.
func (t *tally) expired(now time.Time) bool {
	return len(t.due) > 0 && t.due[0].Until <= now.UnixMicro()
}

// expire drops those whose time has passed. The caller has the lock for reading, and has it again afterwards.
func (t *tally) expire(now time.Time) {
	t.mu.RUnlock()
	t.mu.Lock()
	for t.expired(now) {
		t.drop(t.due[0])
	}
	t.mu.Unlock()
	t.mu.RLock()
}

// release is the end of a reservation, as an agent's entry says it.
type release struct{ id, agent string }

type releases map[release]bool

// without is how much of what is reserved under a key, or for a handoff, is released by these, which are noted beside
// the tally. The caller has the lock for reading.
func (t *tally) without(released releases, of func(*held) int64) (sum int64) {
	for r := range released {
		if h := t.held[r.id]; h != nil && h.agent == r.agent {
			sum += of(h)
		}
	}
	return sum
}

// dueHeap has the reservations by the time at which they end.
type dueHeap []*held

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].Until < d[j].Until }
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push implements heap.Interface.
func (d *dueHeap) Push(h any) {
	h.(*held).place = len(*d)
	*d = append(*d, h.(*held))
}

// Pop implements heap.Interface.
func (d *dueHeap) Pop() any {
	last := (*d)[len(*d)-1]
	(*d)[len(*d)-1] = nil
	*d = (*d)[:len(*d)-1]
	return last
}
