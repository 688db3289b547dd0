package run

import (
	"database/sql"
	"errors"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/ledger"
	"signalbox/internal/price"
	"signalbox/internal/run/engine"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// spent is an amount that was used. Dollars are whole nano-dollars, which add up
// without error.
type spent struct {
	Tokens int64 `json:"tokens"`
	Nanos  int64 `json:"nano_usd"`
	// Input and Output are the tokens that models read, from a cache or not, and those that they wrote.
	Input  int64     `json:"input,omitzero"`
	Output int64     `json:"output,omitzero"`
	Calls  int64     `json:"calls,omitzero"` // of models
	By     []spentOn `json:"by,omitempty"`   // the same by model
}

// spentOn is what was spent on one model.
type spentOn struct {
	Model string `json:"model"`
	price.Usage
	price.Cost
}

// isZero reports whether nothing was spent.
func (s *spent) isZero() bool { return s.Tokens == 0 && s.Nanos == 0 && s.Calls == 0 }

// apart is how many of the tokens models read and wrote. Entries of version 0.1 do not say; there it follows from
// what the whole run used.
func (s *spent) apart(u engine.Usage) (input, output int64) {
	if all := u.Budgeted(); s.Input+s.Output == 0 && all > 0 {
		output = int64(float64(s.Tokens) * float64(u.Apart().Output) / float64(all))
		return s.Tokens - output, output
	}
	return s.Input, s.Output
}

// add adds what was spent on a model.
func (s *spent) add(one spentOn) {
	s.By = append(s.By, one)
	s.Input += one.InputTokens()
	s.Output += one.OutputTokens()
	s.Tokens += one.Tokens()
	s.Nanos += one.Nanos
}

// kinds are counts of tokens: read, written, read from a cache, and written to one for minutes and for an hour.
type kinds [5]int64

// of is the tokens of an engine by kind. It and usage are the one place where tokens of CLIs become those that are
// priced.
func of(t engine.Tokens, source string) kinds {
	t = t.Bounded(maxTokens).Apart(source)
	return kinds{t.Input, t.Output, t.CacheRead, t.CacheWrite - t.CacheWrite1h, t.CacheWrite1h}
}

func (k kinds) usage() price.Usage {
	return price.Usage{Input: k[0], Output: k[1], CacheRead: k[2], CacheWrite: k[3], CacheWrite1h: k[4]}
}

func (k kinds) sum() (n int64) {
	for _, one := range k {
		n += one
	}
	return n
}

// less is what k has more than other, of each kind.
func (k kinds) less(other kinds) kinds {
	for i := range k {
		k[i] = max(0, k[i]-other[i])
	}
	return k
}

// covers reports whether k has at least as much as other. How long a cache is kept does not matter: not every version
// of a CLI says.
func (k kinds) covers(other kinds) bool {
	return k[0] >= other[0] && k[1] >= other[1] && k[2] >= other[2] && k[3]+k[4] >= other[3]+other[4]
}

// tally are tokens by model.
type tally map[string]kinds

// maxModels is how many models of a run are told apart, and maxModelName how long their names are.
const (
	maxModels    = 100
	maxModelName = 128
)

// tallyOf is the tokens of an engine by model. What is of no model that can be stored is of the run's own.
func tallyOf(source, own string, all engine.Tokens, models map[string]engine.Tokens) tally {
	own = modelName(own)
	rest, out := of(all, source), tally{}
	for _, name := range slices.Sorted(maps.Keys(models)) {
		k := of(models[name], source)
		if name = modelName(name); name == "" || len(out) >= maxModels {
			continue
		}
		for i := range k { // a part is never more than the whole
			k[i] = min(k[i], rest[i])
			rest[i] -= k[i]
		}
		out[name] = out[name].plus(k)
	}
	if rest != (kinds{}) {
		out[own] = out[own].plus(rest)
	}
	return out
}

func (k kinds) plus(other kinds) kinds {
	for i := range k {
		k[i] += other[i]
	}
	return k
}

// modelName is the name of a model as it is stored.
func modelName(name string) string {
	if len(name) > maxModelName || strings.ContainsRune(name, 0) { // which no database stores
		return ""
	}
	return name
}

// sum is the tokens of all models.
func (t tally) sum() (k kinds) {
	for _, one := range t {
		k = k.plus(one)
	}
	return k
}

// usedBy is what a run itself has used, by what its CLI says of it, and of its session. Where the CLI reports the
// whole session, the run's part is the difference to what it reported in earlier runs (before), if that can be: it is
// not negative, and not less than what the stream of the run has shown. Else the CLI has begun to count anew with
// this run, and all of it is the run's (RUN-47).
func usedBy(u *engine.Usage, before *engine.Total) (used tally, cost *float64) {
	used, cost = tallyOf(u.Source, u.Model, u.Tokens, u.Models), u.CostUSD
	if u.Session == nil {
		return used, cost
	}
	own, fresh := used.sum(), true
	total := tallyOf(u.Source, u.Model, u.Session.Tokens, u.Session.Models)
	if before != nil {
		earlier := tallyOf(u.Source, u.Model, before.Tokens, before.Models)
		rest := total.sum().less(earlier.sum())
		if total.sum().covers(earlier.sum()) && rest.covers(own) {
			fresh = false
			for model, k := range total {
				total[model] = k.less(earlier[model])
			}
			total = total.within(rest)
		}
	}
	if cost == nil && u.Session.CostUSD != nil {
		part := max(*u.Session.CostUSD, 0)
		if before != nil && before.CostUSD != nil && *before.CostUSD <= part && (!fresh || total.sum() == (kinds{})) {
			part -= max(*before.CostUSD, 0)
		}
		cost = &part
	}
	if !total.sum().covers(own) {
		return used, cost
	}
	return total.keepHours(used), cost
}

// keepHours is a tally in which at least as much is kept in a cache for an hour as the stream has shown: sums of older
// versions do not tell.
func (t tally) keepHours(shown tally) tally {
	missing := shown.sum()[4] - t.sum()[4]
	for _, model := range slices.Sorted(maps.Keys(t)) {
		if k := t[model]; missing > 0 {
			part := min(missing, k[3])
			k[3], k[4] = k[3]-part, k[4]+part
			t[model] = k
			missing -= part
		}
	}
	return t
}

// within is a tally of which no kind is more than most, over all models. Models that a CLI names differently at its
// end are not counted twice by it.
func (t tally) within(most kinds) tally {
	out := tally{}
	for _, model := range slices.Sorted(maps.Keys(t)) {
		k := t[model]
		for i := range k {
			k[i] = min(k[i], most[i])
			most[i] -= k[i]
		}
		if k != (kinds{}) {
			out[model] = k
		}
	}
	return out
}

// providers are those of the models of engines that have one.
var providers = map[string]string{"claude": "anthropic", "codex": "openai", "gemini": "google"}

// due is what an event adds to what was counted of the run. Totals never fall (RUN-30): an engine that starts counting
// again has given nothing back. r is changed to what is counted then.
func (s *Runs) due(r *row, u *engine.Usage, used tally, cost *float64) (due spent) {
	// The kinds of all models together, and their sum, bound what is new.
	most := used.sum().less(r.counted.sum())
	if over := most.sum() - max(0, used.sum().sum()-r.tokens); over > 0 {
		for i := range most {
			part := min(most[i], over)
			most[i] -= part
			over -= part
		}
	}
	grown := tally{}
	for model, k := range used {
		grown[model] = k.less(r.counted[model])
	}
	grown = grown.within(most)
	if calls := min(max(u.Calls, 0), maxTokens); r.meter == "" && calls > r.calls {
		due.Calls = calls - r.calls
		r.calls = calls
	}
	unpriced := false
	for _, model := range slices.Sorted(maps.Keys(grown)) {
		one := spentOn{Model: model, Usage: grown[model].usage()}
		one.Cost = s.price(r.engine, model, one.Usage, due.Calls)
		unpriced = unpriced || one.Unpriced()
		due.add(one)
		r.counted[model] = r.counted[model].plus(grown[model])
	}
	due.settle(r, u.Model, cost, unpriced)
	r.tokens += due.Tokens
	r.nanos += due.Nanos
	return due
}

// settle brings the cost of an event in line with what the CLI says that the run has cost in all (RUN-31): of models
// that the table has, the more of the two counts; of others what the CLI says.
func (s *spent) settle(r *row, model string, said *float64, unpriced bool) {
	if said == nil {
		s.cap(r)
		return
	}
	total := nanos(min(max(*said, 0), maxUSD))
	switch missing := total - r.nanos - s.Nanos; {
	case missing > 0:
		if len(s.By) == 0 {
			s.By = append(s.By, spentOn{Model: modelName(model)})
		}
		last := &s.By[len(s.By)-1]
		last.Nanos += missing
		s.Nanos += missing
	case missing < 0 && unpriced && total > 0:
		s.drop(min(-missing, s.Nanos))
	}
	s.cap(r)
}

// drop takes from the cost of an event.
func (s *spent) drop(nanos int64) {
	s.Nanos -= nanos
	for i := range s.By {
		part := min(nanos, s.By[i].Nanos)
		s.By[i].Nanos -= part
		nanos -= part
	}
}

// cap keeps the cost of a run below what sums can hold.
func (s *spent) cap(r *row) {
	if over := r.nanos + s.Nanos - nanos(maxUSD); over > 0 {
		s.drop(min(over, s.Nanos))
	}
}

// price is what tokens of a model cost that were used in so many calls, 0 if nobody knows. Long requests may cost
// more, so it is the length of a single one that matters.
func (s *Runs) price(by, model string, u price.Usage, calls int64) price.Cost {
	provider, all := providers[by], s.core.Prices.Cost(providers[by], model, u)
	if calls < 2 {
		return all
	}
	each := u
	for _, n := range []*int64{&each.Input, &each.Output, &each.CacheRead, &each.CacheWrite, &each.CacheWrite1h} {
		*n = (*n + calls - 1) / calls
	}
	table, now := s.core.Prices.InForce(), s.core.Now()
	long, _ := table.Find(provider, model, now, u.InputTokens())
	short, _ := table.Find(provider, model, now, each.InputTokens())
	if long.Above == short.Above {
		return all
	}
	one := s.core.Prices.Cost(provider, model, each)
	if one.Nanos > 0 && calls > nanos(maxUSD)/one.Nanos {
		return all
	}
	all.Nanos = one.Nanos * calls
	return all
}

// count finds out what an event adds to what the run has used. What the CLI of a metered run says is only noted: the
// proxy counts its calls (RUN-48).
func (s *Runs) count(tx *ledger.Tx, run string, r *row, body *reported) (err error) {
	u := &body.Usage
	if u.Tokens == (engine.Tokens{}) && u.CostUSD == nil && u.Session == nil {
		return nil
	}
	if r.counted == nil {
		if r.counted, err = readCounted(tx, run); err != nil {
			return err
		}
	}
	var before *engine.Total
	if u.Session != nil {
		if before, err = reportedBefore(tx, r, run); err != nil {
			return err
		}
	}
	used, cost := usedBy(u, before)
	if r.meter == "" {
		body.Spent = s.due(r, u, used, cost)
		for model := range r.counted {
			one := s.price(r.engine, model, price.Usage{}, 0)
			body.Unpriced = body.Unpriced || body.Status != "" && cost == nil && one.Unpriced()
		}
		return nil
	}
	beside := row{engine: r.engine, counted: tally{}}
	all := s.due(&beside, u, used, cost)
	if all.Tokens > r.said.Tokens || all.Nanos > r.said.Nanos {
		r.said = said{max(all.Tokens, r.said.Tokens), max(all.Nanos, r.said.Nanos)}
		body.Said = &r.said
	}
	return nil
}

// readCounted reads what was counted of a run, by model.
func readCounted(tx *ledger.Tx, run string) (tally, error) {
	counted := tally{}
	err := store.Each(tx.Query, func(scan store.Scan) error {
		var model string
		var k kinds
		if err := scan(&model, &k[0], &k[1], &k[2], &k[3], &k[4]); err != nil {
			return err
		}
		counted[model] = k
		return nil
	}, "SELECT model, input, output, cache_read, cache_write, cache_write_1h FROM run_usage WHERE run = $1", run)
	return counted, err
}

// reportedBefore is what the CLI has reported of a session in the run before this one, nil if nothing is known.
func reportedBefore(tx *ledger.Tx, r *row, run string) (*engine.Total, error) {
	if r.thread == "" {
		return nil, nil
	}
	var by, last, before string
	err := tx.QueryRow(`SELECT run, reported, before FROM run_session WHERE workspace = $1 AND engine = $2 AND thread = $3`,
		[]any{r.workspace, r.engine, r.thread}, &by, &last, &before)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	text := last
	if by == run { // its own
		text = before
	}
	if err != nil || text == "" {
		return nil, err
	}
	var total engine.Total
	return &total, wire.UnmarshalPart([]byte(text), &total)
}

// boundUsage limits what a supervisor may send, so that it can be stored and added up.
func boundUsage(u engine.Usage) engine.Usage {
	u.Tokens, u.Models, u.Model = u.Tokens.Bounded(maxTokens), boundModels(u.Models), modelName(u.Model)
	if t := u.Session; t != nil {
		u.Session = &engine.Total{Tokens: t.Tokens.Bounded(maxTokens), Models: boundModels(t.Models)}
		if t.CostUSD != nil {
			cost := min(max(*t.CostUSD, 0), maxUSD)
			u.Session.CostUSD = &cost
		}
	}
	return u
}

func boundModels(all map[string]engine.Tokens) (models map[string]engine.Tokens) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if modelName(name) != "" && len(models) < maxModels {
			if models == nil {
				models = map[string]engine.Tokens{}
			}
			models[name] = all[name].Bounded(maxTokens)
		}
	}
	return models
}
