package meter

import (
	"strings"
	"sync"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/ledger"
	"signalbox/internal/price"
	"signalbox/internal/proxy/form"
	"signalbox/internal/roster"
)

// Meter prices calls, and remembers what is counted later. It may be used by any goroutine.
type Meter struct {
	*Recorder

	mu      sync.Mutex
	day     string              // of noticed
	noticed map[string][]string // models without a price, by the agent's id
	runs    map[string]bool     // agent and run whose beginning is written
	filed   map[string]bool     // files of results that are written
}

// New makes the meter of a proxy.
func New(r *Recorder) *Meter {
	return &Meter{Recorder: r, noticed: map[string][]string{}, runs: map[string]bool{}, filed: map[string]bool{}}
}

// dearest is what usage costs at the dearest of the models that a reply names: it says what has worked, and the request
// what was asked for. That counts only where the table knows it: an alias of a gateway is no price.
func (m *Meter) dearest(provider, asked string, about *form.Facts, u price.Usage) price.Cost {
	cost := m.core.Prices.Cost(provider, asked, u)
	if about.Model == "" || about.Model == asked && len(about.Models) == 0 {
		return cost
	}
	by := m.core.Prices.Cost(provider, about.Model, u)
	if cost.Unpriced() || cost.Nanos <= by.Nanos {
		cost = by
	}
	for _, other := range about.Models {
		if by := m.core.Prices.Cost(provider, other, u); by.Nanos > cost.Nanos {
			cost = by
		}
	}
	return cost
}

// Sent is what was sent to a provider, as far as it says what a reply took that does not say so itself.
type Sent struct {
	Provider string
	Model    string
	Bytes    int64
	// Most is how many tokens the reply may have, 0 if the request does not say.
	Most int64
	Took time.Duration
	// Broken says that the reply broke off, or that nobody has waited for it.
	Broken bool
}

const (
	// assumedOutput is how many tokens a reply may have whose request sets no limit.
	assumedOutput = 8192
	// tokensASecond is how fast a model writes, at the least that is taken for a reply that broke off: what it reasoned
	// is not in what arrived.
	tokensASecond = 100
)

// most is how many tokens the reply may have.
func (s *Sent) most() int64 {
	if s.Most > 0 {
		return s.Most
	}
	return assumedOutput
}

// Take sets in the record of a call what it took and cost. Without a report it is estimated by what was sent and by the
// text that came, and if the reply broke off by how long the provider worked on it.
func (m *Meter) Take(n *Called, s Sent, about *form.Facts) {
	u := about.Usage
	if !about.Reported {
		guess := price.Estimate(s.Bytes, about.Text)
		if s.Broken {
			guess.Output = max(guess.Output, min(int64(s.Took.Seconds()*tokensASecond), s.most()))
		}
		if u.InputTokens() == 0 {
			u.Input = guess.Input
		}
		u.Output += max(0, guess.Output-u.OutputTokens())
		u.Estimated = true
	}
	n.Usage = u.Bounded()
	n.Cost = m.dearest(s.Provider, s.Model, about, n.Usage)
	n.Priced = !n.Unpriced()
}

// Request is what a request may cost depends on.
type Request struct {
	Model     string
	Bytes     int64
	MaxTokens int64 // 0 if it sets no limit
	Replies   int64 // how many are asked for; 0 is one
}

// AtMost is what a request may take and cost, at a tier of service that is known, such as that of batches: its input by
// its bytes, its output by its limit.
func (m *Meter) AtMost(provider string, q Request, tier string) (price.Usage, price.Cost) {
	u := price.Estimate(q.Bytes, 0)
	s := Sent{Most: q.MaxTokens}
	u.Output = min(s.most(), mostOutput) * min(max(q.Replies, 1), mostReplies)
	u.Tier = tier
	u = u.Bounded()
	return u, m.core.Prices.Cost(provider, q.Model, u)
}

// mostOutput and mostReplies bound what a request says of itself, far above what providers take, so that their product
// is a number.
const (
	mostOutput  = 1e9
	mostReplies = 1000
)

// maxNoticed is how many models without a price an agent makes people look at in a day.
const maxNoticed = 5

// Notice tells people of a model without a price, once a day for each model. The agent chooses the name: it is not in
// the title, and after a few there is no further alarm.
func (m *Meter) Notice(who roster.Identity, model string) {
	day := m.core.Now().UTC().Format(time.DateOnly)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.day != day {
		m.day = day
		clear(m.noticed)
	}
	known := m.noticed[who.ID]
	for _, one := range known {
		if strings.EqualFold(one, model) {
			return
		}
	}
	if len(known) == maxNoticed {
		return
	}
	m.noticed[who.ID] = append(known, model)
	title := "An agent calls a model that has no price"
	if len(known) > 0 {
		title = "An agent calls another model that has no price (" + string('1'+rune(len(known))) + ")"
	}
	p, _ := m.core.Prices.InForce().Find("", price.Any, m.core.Now(), 0)
	one := alarm.Alarm{
		Workspace: who.Workspace, Kind: "model_unpriced", Agent: who.ID, Title: title,
		Detail: "The model is " + Clip(model) + ". Its calls count as those of an unknown model do, at " + dollars(p.Input) +
			" for a million tokens of input and " + dollars(p.Output) + " of output. `signalbox pricing set` gives it a price.",
	}
	m.Later(func(tx *ledger.Tx) error { return alarm.Raise(tx, one) })
}

func dollars(n float64) string { return price.Dollars(int64(n * 1e9)) }

// Clip is a name as an alarm or a record has it, however long an agent has made it.
func Clip(name string) string {
	const most = 128
	if name = Clean(name); len(name) > most {
		name = strings.ToValidUTF8(name[:most], "") + "…"
	}
	return name
}

// Clean makes text fit for a record: valid UTF-8 without NUL. What agents and models write may have
// neither.
func Clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// Bill is what a reply took, for what was due.
func (m *Meter) Bill(provider string, about *form.Facts) Bill {
	u := about.Usage.Bounded()
	return Bill{Model: Clip(about.Model), Results: 1, Usage: u, Cost: m.dearest(provider, about.Model, about, u)}
}
