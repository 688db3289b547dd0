package price

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Listed is the table as clients and people see it.
type Listed struct {
	Version int64  `json:"version"` // 0 came with the program
	Unit    string `json:"unit"`
	// Read is the newest day on which prices were read from the providers' lists, and AgeDays how long ago that is.
	Read    string  `json:"read"`
	AgeDays int     `json:"age_days"`
	Models  []Price `json:"models"`
}

const unit = "usd_per_million_tokens"

// List is the table in force.
func (p *Prices) List() Listed {
	t := p.InForce()
	l := Listed{Version: t.Version, Unit: unit, Models: t.Rows}
	if len(p.own) > 0 {
		newest := slices.MaxFunc(p.own, func(a, b Price) int { return cmp.Compare(a.Read, b.Read) })
		l.Read = newest.Read
	}
	if day, err := time.Parse(time.DateOnly, l.Read); err == nil {
		l.AgeDays = max(0, int(p.now().Sub(day).Hours()/24))
	}
	return l
}

// Own are the prices that operators have set.
func (p *Prices) Own() []Price { return p.force.Load().set }

// Asked is how a model is priced now: the row that holds, and how it was found.
type Asked struct {
	Model string `json:"model"`
	Match Match  `json:"match"`
	Price Price  `json:"price"`
}

// Ask is how a model is priced now, for a request of so many tokens.
func (p *Prices) Ask(provider, model string, input int64) Asked {
	row, match := p.InForce().Find(provider, model, p.now(), input)
	return Asked{model, match, row}
}

// maxBody is how many bytes a change has at the most: ten thousand prices.
const maxBody = 4 << 20

// Routes are the prices' part of the API.
func (p *Prices) Routes() []wire.Route {
	return []wire.Route{
		{
			Method: "GET", Path: "/amp/pricing", Summary: "What models cost", Answer: Listed{},
			Handle: wire.Answer(http.StatusOK, func(*http.Request) (Listed, error) { return p.List(), nil }),
		},
		{
			Method: "GET", Path: "/ops/pricing/{model...}", Summary: "How a model is priced, and by which row", Auth: wire.Viewer,
			Answer: Asked{}, Handle: wire.Answer(http.StatusOK, func(r *http.Request) (Asked, error) {
				return p.Ask(r.URL.Query().Get("provider"), r.PathValue("model"), 0), nil
			}),
			Query: []wire.Param{{Name: "provider", Meaning: "anthropic, openai or google, if it is known"}},
		},
		{
			Method: "PUT", Path: "/ops/pricing",
			Summary: "Set the prices of the models that are named; all others stay", Auth: wire.Admin, Request: Change{},
			Answer: Listed{}, Handle: wire.Take(http.StatusOK, maxBody, p.put),
		},
	}
}

func (p *Prices) put(r *http.Request, c Change) (Listed, error) {
	_, err := p.Change(r.Context(), roster.From(r.Context()), c)
	return p.List(), err
}
