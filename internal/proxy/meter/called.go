package meter

import (
	"signalbox/internal/behalf"
	"signalbox/internal/counter"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/price"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// Called is the record of one call that was carried. It has no text of the conversation (PRX-49): counts, names, and
// the rule that allowed it. Its JSON is stored for ever: members are only added.
type Called struct {
	At        int64  `json:"at"`   // microseconds since 1970
	Took      int64  `json:"took"` // microseconds
	Provider  string `json:"provider"`
	Call      string `json:"call"` // method and path
	Model     string `json:"model,omitzero"`
	Stream    bool   `json:"stream,omitzero"`
	Status    int    `json:"status"`
	ID        string `json:"id,omitzero"` // the provider's, of the reply
	Request   string `json:"request,omitzero"`
	Policy    int64  `json:"policy,omitzero"`
	Rule      string `json:"rule,omitzero"`
	ToolCalls int    `json:"tool_calls,omitzero"`
	// Decided says that the decision about the request is an entry of its own, by which it is counted; ToolsDecided
	// is how many of the tool calls have one. Allowed is how many decisions allowed something, and have none.
	Decided      bool `json:"decided,omitzero"`
	ToolsDecided int  `json:"tools_decided,omitzero"`
	Allowed      int  `json:"allowed,omitzero"`

	price.Usage
	price.Cost
	Priced bool   `json:"priced,omitzero"` // the table has a price for the model; in old entries nothing else says so
	Run    string `json:"run,omitzero"`
	// Batch is the id of the batch whose results these are, of one model, and Results how many.
	Batch   string `json:"batch,omitzero"`
	Results int    `json:"results,omitzero"`
	// Reserve is the id of what was reserved for the call, which ends with its record.
	Reserve string `json:"reserve,omitzero"`
}

// unpriced reports whether the price of what was used is not known.
func (c *Called) unpriced() bool {
	if c.Match == "" {
		return !c.Priced && c.Tokens() > 0
	}
	return c.Unpriced()
}

// Calls is the body of proxy.called: the calls of one agent for one user in one deck, within about 100 ms.
type Calls struct {
	behalf.Of           // on whose behalf
	Agent     string    `json:"agent"`
	Project   string    `json:"project,omitzero"`
	Calls     []*Called `json:"calls"`
}

// readCalls are the calls in a proxy.called entry, none if its body was erased.
func readCalls(e *ledger.Entry) (Calls, error) {
	var c Calls
	if v, ok := e.Value().(*Calls); ok {
		return *v, nil
	}
	if e.Body == nil {
		return c, nil
	}
	return c, wire.UnmarshalPart(e.Body, &c)
}

// The kinds of entries. They are part of the stored format: a new meaning is a new kind.
const (
	KindCalled  = "proxy.called"  // what was carried
	kindBegan   = "proxy.began"   // the first call of a run
	kindDue     = "proxy.due"     // what will cost something that is known later
	kindSettled = "proxy.settled" // and when it is known
	kindFiled   = "proxy.filed"   // where the results of a batch are
)

// Readers let the rulebook count prompts, tool calls, tokens and cost of calls that passed. Decisions to
// gate or block are entries of their own, which it reads by itself.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{
		KindCalled: func(e *ledger.Entry) (rulebook.Reading, error) {
			c, err := readCalls(e)
			if err != nil {
				return rulebook.Reading{}, err
			}
			return rulebook.Reading{Facts: c.facts()}, nil
		},
		kindDue:     readDue,
		kindSettled: readSettled,
	}
}

// facts are what calls add to the counters of rules, for each run that they name. What was reserved for a call ends
// with what it took.
func (c *Calls) facts() (facts []rulebook.Fact) {
	for i := 0; i < len(c.Calls); {
		of := rulebook.Belongs{
			Agent: c.Agent, User: c.User, Tier: policy.API, Project: c.Project, Run: c.Calls[i].Run, Handoff: c.Handoff,
		}
		var prompts, tools, allowed, tokens, cost float64
		for ; i < len(c.Calls) && c.Calls[i].Run == of.Run; i++ { // most often all
			one := c.Calls[i]
			if one.Rule != "" && !one.Decided {
				prompts++
			}
			tools += float64(one.ToolCalls - one.ToolsDecided)
			allowed += float64(one.Allowed)
			tokens += float64(one.Tokens())
			cost += float64(one.Nanos) / 1e9
			if one.Reserve != "" {
				facts = append(facts, rulebook.Fact{Belongs: of, Release: one.Reserve})
			}
		}
		facts = append(facts,
			rulebook.Fact{Belongs: of, What: "prompts", N: prompts},
			rulebook.Fact{Belongs: of, What: "tool_calls", N: tools},
			rulebook.Fact{Belongs: of, What: "allowed", N: allowed},
			rulebook.Fact{Belongs: of, What: "tokens", N: tokens},
			rulebook.Fact{Belongs: of, What: "cost", N: cost})
	}
	return facts
}

// Counters count calls, tokens and cost by model and by the rule that let the call pass. A call whose model has no price
// counts as one of unknown cost. A batch counts when its results are fetched.
func Counters(protocol string) map[string]counter.Reader {
	return map[string]counter.Reader{KindCalled: func(e *ledger.Entry) ([]counter.Count, error) {
		c, err := readCalls(e)
		if err != nil {
			return nil, err
		}
		all := counter.PerModel{Project: c.Project, Agent: c.Agent, Protocol: protocol}
		for _, one := range c.Calls {
			n := counter.Counts{
				Calls: 1, InputTokens: one.InputTokens(), OutputTokens: one.OutputTokens(), CacheRead: one.CacheRead,
				CacheWrite: one.CacheWrite + one.CacheWrite1h, CostNano: one.Nanos,
			}
			if one.unpriced() {
				n.CostUnknown = 1
			}
			if one.Estimated {
				n.Estimated = 1
			}
			all.Of(one.Model, one.Rule).Add(&n)
		}
		return all.Counts(), nil
	}}
}
