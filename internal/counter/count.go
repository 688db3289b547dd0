package counter

import (
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Counts are the numbers that are kept for an agent, in a deck, on a day. None is negative.
type Counts struct {
	Completed, Failed, Interrupted                           int64 // runs
	InputTokens, OutputTokens, CostNano                      int64
	CostVerified, CostUnder, CostOver, CostUnknown, CostZero int64 // runs, by what the price table says of their cost
	GatesOpened, GatesApproved, GatesRejected, GatesExpired  int64
}

// columns are the names of the numbers, in the order of fields.
var columns = []string{
	"completed", "failed", "interrupted", "input_tokens", "output_tokens", "cost_nano",
	"cost_verified", "cost_under", "cost_over", "cost_unknown", "cost_zero",
	"gates_opened", "gates_approved", "gates_rejected", "gates_expired",
}

// fields are the numbers in the order of columns, for reading and writing rows.
func (c *Counts) fields() []*int64 {
	return []*int64{
		&c.Completed, &c.Failed, &c.Interrupted, &c.InputTokens, &c.OutputTokens, &c.CostNano,
		&c.CostVerified, &c.CostUnder, &c.CostOver, &c.CostUnknown, &c.CostZero,
		&c.GatesOpened, &c.GatesApproved, &c.GatesRejected, &c.GatesExpired,
	}
}

// most is where sums saturate. Agents report costs themselves, and a sum that overflows would
// be refused by the database and stop the counting of everything else.
const most = int64(1) << 62

// add adds number by number, each saturating by itself.
func (c *Counts) add(other *Counts) {
	from := other.fields()
	for i, n := range c.fields() {
		*n = plus(*n, *from[i])
	}
}

// plus adds two numbers that are not negative, and saturates at most.
func plus(a, b int64) int64 {
	if a > most-min(b, most) {
		return most
	}
	return a + b
}

// Count is what an entry adds to the counters.
type Count struct {
	Project string // the deck; DefaultDeck when it is empty
	Agent   string // the agent's id
	Counts
	// Waited is how long people took to decide, nil when nobody did.
	Waited *time.Duration
}

// Reader finds what an entry of one kind adds to the counters, nil for nothing. It must give
// the same answer for the same entry every time: entries are counted again after a Reset.
type Reader func(e *ledger.Entry) (*Count, error)

// gateReaders count gates.
func gateReaders() map[string]Reader {
	return map[string]Reader{"gate.opened": countOpened, "gate.resolved": countResolved}
}

// countOpened takes the value from memory if this process has appended it, and decodes only what
// it needs otherwise.
func countOpened(e *ledger.Entry) (*Count, error) {
	if o, ok := e.Value().(*gate.Opening); ok {
		return &Count{Project: o.Project, Agent: o.Agent, Counts: Counts{GatesOpened: 1}}, nil
	}
	// There are as many as signals, and most of what they hold is not counted.
	var o struct {
		Project string `json:"project"`
		Agent   string `json:"agent"`
	}
	err := wire.UnmarshalPart(e.Body, &o)
	return &Count{Project: o.Project, Agent: o.Agent, Counts: Counts{GatesOpened: 1}}, err
}

// countResolved counts a gate by what resolved it. Only a person's vote has a time to decide.
func countResolved(e *ledger.Entry) (*Count, error) {
	var r gate.Resolution
	if err := e.Decode(&r); err != nil {
		return nil, err
	}
	c := &Count{Project: r.Project, Agent: r.Agent}
	switch {
	case r.Cause == gate.ByExpiry:
		c.GatesExpired = 1
	case r.Cause == gate.ByEnd: // nobody has rejected it
	case r.Status == gate.Approved:
		c.GatesApproved = 1
	default:
		c.GatesRejected = 1
	}
	if r.Cause == gate.ByVote {
		waited := e.At.Sub(time.UnixMicro(r.OpenedAt))
		c.Waited = &waited
	}
	return c, nil
}
