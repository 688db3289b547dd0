package counter

import "time"

// The answers.
type (
	// Sum is everything that is counted, for one part of a report or the whole.
	Sum struct {
		Runs Runs `json:"runs"`
		// Calls are those of models that the proxy carried. The usage of some is an estimate: no provider reported it.
		Calls          int64 `json:"calls"`
		EstimatedCalls int64 `json:"estimated_calls"`
		// InputTokens are all that models read, those of a cache among them.
		InputTokens      int64   `json:"input_tokens"`
		OutputTokens     int64   `json:"output_tokens"`
		CacheReadTokens  int64   `json:"cache_read_tokens"`
		CacheWriteTokens int64   `json:"cache_write_tokens"`
		CostUSD          float64 `json:"cost_usd"`
		Costs            Costs   `json:"costs"`
		Gates            Tallies `json:"gates"`
		Blocks           int64   `json:"blocks"`    // what rules refused
		Decisions        int64   `json:"decisions"` // by people
		// MedianSeconds is how long people took to decide, nil when nobody did.
		MedianSeconds *float64 `json:"median_decision_seconds"`
	}
	// Runs are runs by status.
	Runs struct {
		Completed   int64 `json:"completed"`
		Failed      int64 `json:"failed"`
		Interrupted int64 `json:"interrupted"`
		Cancelled   int64 `json:"cancelled"` // by a person
		Stopped     int64 `json:"stopped"`   // by a budget, a limit of time or a policy
	}
	// Costs are runs and calls by what the price table says of their cost.
	Costs struct {
		Verified     int64 `json:"verified"`
		Under        int64 `json:"under"`
		Over         int64 `json:"over"`
		UnknownModel int64 `json:"unknown_model"`
		Zero         int64 `json:"zero"`
	}
	// Tallies are gates by outcome. Waiting is how many wait now, whichever time is looked at; only the whole,
	// decks and agents have it.
	Tallies struct {
		Opened    int64 `json:"opened"`
		Approved  int64 `json:"approved"`
		Rejected  int64 `json:"rejected"`
		Expired   int64 `json:"expired"`
		Withdrawn int64 `json:"withdrawn"` // the run that asked has ended
		Waiting   int64 `json:"waiting"`
	}
	// DeckSum is a deck's part.
	DeckSum struct {
		Workspace string `json:"workspace"`
		Name      string `json:"name"`
		Counts    Sum    `json:"counts"`
	}
	// AgentSum is an agent's part. One that is gone has no name.
	AgentSum struct {
		Workspace string `json:"workspace"`
		ID        string `json:"id"`
		Name      string `json:"name"`
		Counts    Sum    `json:"counts"`
	}
	// NameSum is the part of a model, a protocol or a rule. The name "" is for what has none, such as a gate that
	// is about no model; Other is for models, decks and rules that were too many to be told apart.
	NameSum struct {
		Name   string `json:"name"`
		Counts Sum    `json:"counts"`
	}
	// HourSum is an hour's part.
	HourSum struct {
		Hour   string `json:"hour"` // UTC, such as 2026-11-01T13
		Counts Sum    `json:"counts"`
	}
	// DaySum is a day's part.
	DaySum struct {
		Day    string `json:"day"`
		Counts Sum    `json:"counts"`
	}
	// Report is what was counted from a day or an hour to another, both included. Of each kind the parts add up to the
	// total, but for hours, which begin with the day before the last unless the question is by hour.
	Report struct {
		From      string     `json:"from"`
		To        string     `json:"to"`
		Seq       int64      `json:"seq"` // the last entry that is counted
		Total     Sum        `json:"total"`
		Decks     []DeckSum  `json:"decks"`
		Agents    []AgentSum `json:"agents"`
		Days      []DaySum   `json:"days"`
		Hours     []HourSum  `json:"hours"`
		Models    []NameSum  `json:"models"`
		Protocols []NameSum  `json:"protocols"`
		Rules     []NameSum  `json:"rules"`
		// OldestWaiting is since when the gate waits that waits the longest.
		OldestWaiting        *time.Time `json:"oldest_waiting_since"`
		OldestWaitingSeconds *float64   `json:"oldest_waiting_seconds"`
		// Spenders are the agents that cost the most, of all that there are.
		Spenders []AgentSum `json:"-"`
	}
)

// Today is what was counted on the last day of the report, nothing if that is not among its days.
func (r *Report) Today() Sum {
	for _, d := range r.Days {
		if d.Day == r.To {
			return d.Counts
		}
	}
	return Sum{}
}
