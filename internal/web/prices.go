package web

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/price"
)

// priceList is the page of prices: those of a provider, or those that match a word, with how the word would be priced if it
// were a model.
type priceList struct {
	price.Listed
	Search    string
	Provider  string // "set" for what operators have set
	Providers []string
	Asked     *price.Asked
	Own       map[string]bool // models of which an operator has set a price
}

// maxPrices is how many rows one page shows.
const maxPrices = 100

// loadPrices reads the table, which is in memory.
func (w *Web) loadPrices(r *Request) (any, error) {
	q := r.URL.Query()
	v := &priceList{
		Listed: w.Prices.List(), Search: strings.TrimSpace(q.Get("q")), Provider: cmp.Or(q.Get("provider"), "anthropic"),
		Own: map[string]bool{},
	}
	for _, p := range w.Prices.Own() {
		v.Own[p.Model] = true
	}
	for _, p := range v.Models {
		if p.Provider != "" && !slices.Contains(v.Providers, p.Provider) {
			v.Providers = append(v.Providers, p.Provider)
		}
	}
	listed := func(p price.Price) bool {
		return p.Provider == v.Provider || p.Model == price.Any || v.Provider == "set" && v.Own[p.Model]
	}
	if v.Search != "" {
		asked := w.Prices.Ask("", v.Search, 0)
		v.Asked, v.Provider = &asked, ""
		listed = func(p price.Price) bool {
			return strings.Contains(strings.ToLower(p.Model), strings.ToLower(v.Search)) || p.Model == asked.Price.Model
		}
	}
	v.Models = slices.DeleteFunc(slices.Clone(v.Models), func(p price.Price) bool { return !listed(p) })
	v.Models = v.Models[:min(len(v.Models), maxPrices)]
	return v, nil
}

// setPrice sets the price of one model. Fields that are left empty have no price of their own.
func (w *Web) setPrice(r *Request) (Result, error) {
	at := Result{To: address.Prices.At()}
	p := price.Price{Model: r.Field("model"), Provider: r.Field("provider"), From: r.Field("from")}
	for _, f := range []struct {
		name string
		into **float64
	}{
		{"cache_read", &p.CacheRead}, {"cache_write", &p.CacheWrite}, {"cache_write_1h", &p.CacheWrite1h}, {"batch", &p.Batch},
	} {
		if r.Field(f.name) == "" {
			continue
		}
		n, err := dollarField(r, f.name)
		if err != nil {
			return at, err
		}
		*f.into = &n
	}
	var err error
	if p.Input, err = dollarField(r, "input"); err != nil {
		return at, err
	}
	if p.Output, err = dollarField(r, "output"); err != nil {
		return at, err
	}
	table, err := w.Prices.Change(r.Context(), r.Who, price.Change{Models: []price.Price{p}})
	if err != nil {
		return at, err
	}
	at.Flash = fmt.Sprintf("%s has its price, version %d.", p.Model, table.Version)
	return at, nil
}

// dollarField reads an amount.
func dollarField(r *Request, name string) (float64, error) {
	n, err := strconv.ParseFloat(r.Field(name), 64)
	if err != nil {
		return 0, fault.New(fault.InvalidPayload, "%s should be a number such as 3 or 0.15, and is %.40q.",
			strings.ReplaceAll(name, "_", " "), r.Field(name)).About(name)
	}
	return n, nil
}

// removePrice takes back what was set for a model.
func (w *Web) removePrice(r *Request) (Result, error) {
	_, err := w.Prices.Change(r.Context(), r.Who, price.Change{Removed: []string{r.Field("model")}})
	return Result{To: address.Prices.At(), Flash: "What was set for " + r.Field("model") + " is taken back."}, err
}
