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

// countReported reads what one event adds, nothing if it adds nothing.
func countReported(e *ledger.Entry) ([]counter.Count, error) {
	var b reported
	if err := e.Decode(&b); err != nil {
		return nil, err
	}
	c := counter.Count{Protocol: Name, Model: b.Usage.Model}
	if b.Counts != nil {
		c.Agent = b.Counts.Agent
	}
	c.CostNano = b.Spent.Nanos
	c.InputTokens, c.OutputTokens = b.Spent.apart(b.Usage)
	if b.Unpriced {
		c.CostUnknown = 1
	}
	switch b.Status {
	case Done:
		c.Completed = 1
	case Failed:
		c.Failed = 1
	case Running, "":
	}
	if c.Counts == (counter.Counts{}) {
		return nil, nil
	}
	return []counter.Count{c}, nil
}
