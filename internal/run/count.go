package run

import (
	"signalbox/internal/counter"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// Counters count runs that have ended, and the tokens and the cost of every event, as they arise: rules and
// dashboards see a run that is still going on, and one that is stopped keeps what it had used. Calls of metered runs
// are the proxy's to count.
func Counters() map[string]counter.Reader {
	return map[string]counter.Reader{kindStarted: countReported, kindActed: countReported, kindCompleted: countReported}
}

// Readers find what runs have done and used, for the counters of rules.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kindStarted: readCounts, kindActed: readCounts, kindCompleted: readCounts}
}

func readCounts(e *ledger.Entry) (reading rulebook.Reading, err error) {
	var b reported
	if err := e.Decode(&b); err != nil || b.Counts == nil {
		return reading, err
	}
	for what, n := range map[string]float64{
		"actions": float64(b.Counts.Actions), "tokens": float64(b.Spent.Tokens), "cost": dollars(b.Spent.Nanos),
	} {
		if n > 0 {
			reading.Facts = append(reading.Facts, rulebook.Fact{What: what, N: n, Belongs: rulebook.Belongs{
				Agent: b.Counts.Agent, User: b.User, Session: b.Counts.Session, Tier: policy.Background, Run: e.Subject,
			}})
		}
	}
	return reading, nil
}

// countReported reads what one event adds by model, nothing if it adds nothing. The end of a run is counted with the
// model that the run names.
func countReported(e *ledger.Entry) ([]counter.Count, error) {
	var b reported
	if err := e.Decode(&b); err != nil {
		return nil, err
	}
	all := counter.PerModel{Protocol: Name}
	if b.Counts != nil {
		all.Agent = b.Counts.Agent
	}
	own := counter.Counts{}
	if len(b.Spent.By) == 0 { // in entries of version 0.1
		own.CostNano = b.Spent.Nanos
		own.InputTokens, own.OutputTokens = b.Spent.apart(b.Usage)
	}
	for _, one := range b.Spent.By {
		all.Of(one.Model, "").Add(&counter.Counts{
			InputTokens: one.InputTokens(), OutputTokens: one.OutputTokens(), CacheRead: one.CacheRead,
			CacheWrite: one.CacheWrite + one.CacheWrite1h, CostNano: one.Nanos,
		})
	}
	if b.Unpriced {
		own.CostUnknown = 1
	}
	switch b.Status {
	case Done, oldDone:
		own.Completed = 1
	case Failed:
		own.Failed = 1
	case Cancelled:
		own.Cancelled = 1
	case Stopped:
		own.Stopped = 1
	case Running, "":
	}
	if own != (counter.Counts{}) {
		all.Of(b.Usage.Model, "").Add(&own)
	}
	return all.Counts(), nil
}
