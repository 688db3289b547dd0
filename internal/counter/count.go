package counter

import (
	"bytes"
	"context"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// Counts are the numbers that are kept for each part of what happened. None is negative.
type Counts struct {
	Completed, Failed, Interrupted, Cancelled, Stopped int64 // runs
	// Calls are calls of models that the proxy carried; the usage of some of them is an estimate.
	Calls, Estimated int64
	// InputTokens are all tokens that models read, those of a cache among them.
	InputTokens, OutputTokens, CacheRead, CacheWrite, CostNano int64
	// Runs and calls, by what the price table says of their cost.
	CostVerified, CostUnder, CostOver, CostUnknown, CostZero                int64
	GatesOpened, GatesApproved, GatesRejected, GatesExpired, GatesWithdrawn int64
	// Blocks are decisions of rules that refused something.
	Blocks int64
}

// columns are the names of the numbers, in the order of fields.
var columns = []string{
	"completed", "failed", "interrupted", "calls", "calls_estimated",
	"input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "cost_nano",
	"cost_verified", "cost_under", "cost_over", "cost_unknown", "cost_zero",
	"gates_opened", "gates_approved", "gates_rejected", "gates_expired", "gates_withdrawn", "blocks",
	"cancelled", "stopped",
}

// fields are the numbers in the order of columns, for reading and writing rows.
func (c *Counts) fields() []*int64 {
	return []*int64{
		&c.Completed, &c.Failed, &c.Interrupted, &c.Calls, &c.Estimated,
		&c.InputTokens, &c.OutputTokens, &c.CacheRead, &c.CacheWrite, &c.CostNano,
		&c.CostVerified, &c.CostUnder, &c.CostOver, &c.CostUnknown, &c.CostZero,
		&c.GatesOpened, &c.GatesApproved, &c.GatesRejected, &c.GatesExpired, &c.GatesWithdrawn, &c.Blocks,
		&c.Cancelled, &c.Stopped,
	}
}

// most is where sums saturate. Agents report costs themselves, and a sum that overflows would
// be refused by the database and stop the counting of everything else.
const most = int64(1) << 62

// Add adds number by number, each saturating by itself.
func (c *Counts) Add(other *Counts) {
	from := other.fields()
	for i, n := range c.fields() {
		*n = plus(*n, *from[i])
	}
}

// plus adds two numbers and saturates at most. A negative one counts as 0: nothing that an agent or a provider
// reports may make a sum fall.
func plus(a, b int64) int64 {
	if a, b = max(a, 0), max(b, 0); a > most-min(b, most) {
		return most
	}
	return a + b
}

// Count is what an entry adds to the counters, for one model and one rule. Its hour is that of the entry.
type Count struct {
	Project  string // the deck; DefaultDeck when it is empty
	Agent    string // the agent's id
	Protocol string // the name that gates and rules have for it
	Model    string // "" where no model is known, as for gates
	Rule     string // the rule that allowed, held or refused it, "" for none
	Counts
	// Waited is how long people took to decide, nil when nobody did.
	Waited *time.Duration
}

// Reader finds what an entry of one kind adds to the counters, none for nothing. It must give
// the same answer for the same entry every time: entries are counted again after a Reset.
type Reader func(e *ledger.Entry) ([]Count, error)

// PerModel adds up the calls of one entry: one Count for each model and rule.
type PerModel struct {
	Project, Agent, Protocol string
	all                      []Count
}

// Of is the Count of a model and a rule, to be added to.
func (b *PerModel) Of(model, rule string) *Count {
	for i := range b.all { // few
		if b.all[i].Model == model && b.all[i].Rule == rule {
			return &b.all[i]
		}
	}
	b.all = append(b.all, Count{Project: b.Project, Agent: b.Agent, Protocol: b.Protocol, Model: model, Rule: rule})
	return &b.all[len(b.all)-1]
}

// Counts are all of them.
func (b *PerModel) Counts() []Count { return b.all }

// countOpened takes the value from memory if this process has appended it, and decodes only what
// it needs otherwise.
func countOpened(e *ledger.Entry) ([]Count, error) {
	one := Count{Counts: Counts{GatesOpened: 1}}
	if o, ok := e.Value().(*gate.Opening); ok {
		one.Project, one.Agent, one.Protocol, one.Rule = o.Project, o.Agent, o.Origin.Protocol, o.Shown.Rule
		return []Count{one}, nil
	}
	o, err := readOpening(e)
	one.Project, one.Agent, one.Protocol, one.Rule = o.Project, o.Agent, o.Origin.Protocol, o.Shown.Rule
	return []Count{one}, err
}

// opening is what is counted of gate.opened. There are as many as signals, and most of what they hold is not.
type opening struct {
	Project string `json:"project"`
	Agent   string `json:"agent"`
	Origin  struct {
		Protocol string `json:"protocol"`
	} `json:"origin"`
	Shown struct {
		Rule string `json:"rule"`
	} `json:"shown"`
}

func readOpening(e *ledger.Entry) (o opening, err error) {
	err = wire.UnmarshalPart(e.Body, &o)
	return o, err
}

// countResolved counts a gate by what resolved it. Only a person's vote has a time to decide.
func (c *Counters) countResolved(ctx context.Context, e *ledger.Entry) ([]Count, error) {
	var r gate.Resolution
	if err := e.Decode(&r); err != nil {
		return nil, err
	}
	one := Count{Project: r.Project, Agent: r.Agent, Protocol: r.Protocol, Rule: r.Rule}
	if r.Protocol == "" { // version 0.1 did not write it
		opened, err := c.ledger.Entry(ctx, r.Opened)
		if err != nil && !fault.Is(err, fault.NotFound) {
			return nil, again{err}
		}
		if o, err := readOpening(&opened); err == nil {
			one.Protocol, one.Rule = o.Origin.Protocol, o.Shown.Rule
		}
	}
	switch {
	case r.Cause == gate.ByExpiry:
		one.GatesExpired = 1
	case r.Cause == gate.ByEnd: // nobody has rejected it
		one.GatesWithdrawn = 1
	case r.Status == gate.Approved:
		one.GatesApproved = 1
	default:
		one.GatesRejected = 1
	}
	if r.Cause == gate.ByVote {
		waited := e.At.Sub(time.UnixMicro(r.OpenedAt))
		one.Waited = &waited
	}
	return []Count{one}, nil
}

// again is an error that passes by itself, such as a database that is away: the page is counted later, and no
// entry of it is left out.
type again struct{ error }

// refused is how a decision that blocks stands in a body. What agents wrote may have it too, so this only spares
// the reading of bodies that do not.
var refused = []byte(`"then":"block"`)

// countBlock counts what a rule has refused.
func countBlock(read rulebook.Reader, e *ledger.Entry) ([]Count, error) {
	if !bytes.Contains(e.Body, refused) {
		return nil, nil
	}
	found, err := read(e)
	if d := found.Decision; err == nil && d != nil && d.Then == policy.Block {
		one := Count{Agent: d.AgentID, Rule: d.Rule, Counts: Counts{Blocks: 1}}
		if d.Event != nil {
			one.Project, one.Protocol, one.Model = d.Event.Project, d.Event.Protocol, d.Event.Model
		}
		return []Count{one}, nil
	}
	return nil, err
}
