package counter

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// maxSpenders is how many agents a report names that cost the most.
const maxSpenders = 6

// A report is put together from a few rows for each day, never from entries. One over many days is read from
// counter_sum, which has as many rows for a day as there are agents, and a few more.

// part is one Sum of a report while it is being added up.
type part struct {
	Counts
	waiting int64
	waits   []int64 // microseconds, the shortest first
}

// sum turns the numbers into the form of the answer. The median of an even number of waits is
// the middle of the two in the middle.
func (p *part) sum() Sum {
	s := Sum{
		Runs: Runs{p.Completed, p.Failed, p.Interrupted, p.Cancelled, p.Stopped}, Calls: p.Calls, EstimatedCalls: p.Estimated,
		InputTokens: p.InputTokens, OutputTokens: p.OutputTokens, CacheReadTokens: p.CacheRead,
		CacheWriteTokens: p.CacheWrite, CostUSD: float64(p.CostNano) / 1e9,
		Costs: Costs{p.CostVerified, p.CostUnder, p.CostOver, p.CostUnknown, p.CostZero},
		Gates: Tallies{
			p.GatesOpened, p.GatesApproved, p.GatesRejected, p.GatesExpired, p.GatesWithdrawn, p.waiting,
		},
		Blocks: p.Blocks, Decisions: int64(len(p.waits)),
	}
	if n := len(p.waits); n > 0 {
		median := float64(p.waits[(n-1)/2]+p.waits[n/2]) / 2 / 1e6
		s.MedianSeconds = &median
	}
	return s
}

// merge adds another part, and keeps its waits in order.
func (p *part) merge(other *part) {
	p.Add(&other.Counts)
	p.waiting += other.waiting
	if len(other.waits) > 0 {
		p.waits = append(p.waits, other.waits...)
		slices.Sort(p.waits)
	}
}

// agentOf is an agent in a workspace; ids are unique, and the workspace is for the answer.
type agentOf struct{ workspace, agent string }

// parts are all parts of a report.
type parts struct {
	seq                                   int64
	total                                 part
	decks                                 map[deckName]*part
	agents                                map[agentOf]*part
	models, protocols, rules, days, hours map[string]*part
	oldest                                *time.Time
}

// collect reads what was counted, as of one moment, and which gates wait. Gates that wait are
// read from the inbox and not from the snapshot, so they may be newer by milliseconds.
func (c *Counters) collect(ctx context.Context, f Filter) (*parts, error) {
	p := &parts{
		decks: map[deckName]*part{}, agents: map[agentOf]*part{}, models: map[string]*part{},
		protocols: map[string]*part{}, rules: map[string]*part{}, days: map[string]*part{}, hours: map[string]*part{},
	}
	tx, err := c.db.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	if p.seq, err = position(ctx, tx); err != nil {
		return nil, err
	}
	if err := p.readCounts(store.Reading(ctx, tx), f); err != nil {
		return nil, err
	}
	if err := p.readDecisions(store.Reading(ctx, tx), f); err != nil {
		return nil, err
	}
	waiting, oldest, err := c.gates.Waiting(ctx, gate.Filter{Workspace: f.Workspace, Project: f.Project, Agents: f.Agents})
	p.oldest = oldest
	for _, w := range waiting {
		p.total.waiting += w.Gates
		if f.wants(ByDeck) {
			partFor(p.decks, deckName{w.Workspace, cmp.Or(w.Project, DefaultDeck)}).waiting += w.Gates
		}
		if f.wants(ByAgent) {
			partFor(p.agents, agentOf{w.Workspace, w.Agent}).waiting += w.Gates
		}
	}
	return p, err
}

// readCounts adds up rows by each kind of parts that is asked for, and the whole by day.
func (p *parts) readCounts(query store.Query, f Filter) error {
	hours := f
	if f.By != ByHour && len(f.To) == len(time.DateOnly) {
		last, err := time.Parse(time.DateOnly, f.To)
		if err != nil {
			return err
		}
		hours.From = max(f.From, last.AddDate(0, 0, -1).Format(time.DateOnly))
	}
	for _, kind := range []struct {
		by string
		parting
		of   Filter
		part func(a, b string) *part // a and b are the columns; most have one
	}{
		{ByDay, parting{axisDeck, "day", "substr(hour, 1, 10)"}, f, func(day, _ string) *part { return partFor(p.days, day) }},
		{ByDeck, parting{axisDeck, "workspace, project", "workspace, project"}, f, func(workspace, name string) *part {
			return partFor(p.decks, deckName{workspace, name})
		}},
		{ByAgent, parting{axisAgent, "workspace, name", "workspace, agent"}, f, func(workspace, id string) *part {
			return partFor(p.agents, agentOf{workspace, id})
		}},
		{ByModel, parting{axisModel, "name", "model"}, f, func(name, _ string) *part { return partFor(p.models, name) }},
		{ByProtocol, parting{axisModel, "protocol", "protocol"}, f, func(name, _ string) *part {
			return partFor(p.protocols, name)
		}},
		{ByRule, parting{axisRule, "name", "rule"}, f, func(name, _ string) *part { return partFor(p.rules, name) }},
		{ByHour, parting{axisHour, "day", "hour"}, hours, func(hour, _ string) *part { return partFor(p.hours, hour) }},
	} {
		if !f.wants(kind.by) && kind.by != ByDay {
			continue
		}
		add := addingAll
		if kind.by != ByDay { // which comes first, and is the whole
			add = addingWithin(p.total.Counts)
		}
		err := kind.of.eachSum(query, kind.parting, add, func(a, b string, counts *Counts) {
			if kind.by == ByDay {
				p.total.Add(counts)
			}
			if f.wants(kind.by) {
				kind.part(a, b).Add(counts)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// readDecisions collects how long people took, in order, so that the median can be read off.
func (p *parts) readDecisions(query store.Query, f Filter) error {
	where := f.where()
	return store.Each(query, func(scan store.Scan) error {
		var at cell
		var waited int64
		if err := scan(&at.hour, &at.workspace, &at.project, &at.agent, &at.protocol, &at.rule, &waited); err != nil {
			return err
		}
		took := func(one *part) { one.waits = append(one.waits, waited) }
		took(&p.total)
		for _, kind := range []struct {
			by string
			of func() *part
		}{
			{ByDay, func() *part { return partFor(p.days, at.day()) }},
			{ByDeck, func() *part { return partFor(p.decks, deckName{at.workspace, at.project}) }},
			{ByAgent, func() *part { return partFor(p.agents, agentOf{at.workspace, at.agent}) }},
			{ByModel, func() *part { return partFor(p.models, at.model) }},
			{ByProtocol, func() *part { return partFor(p.protocols, at.protocol) }},
			{ByRule, func() *part { return partFor(p.rules, at.rule) }},
		} {
			if f.wants(kind.by) {
				took(kind.of())
			}
		}
		if p.hours[at.hour] != nil { // the last ones are there
			took(p.hours[at.hour])
		}
		return nil
	}, "SELECT hour, workspace, project, agent, protocol, rule, waited FROM counter_decision WHERE "+where.String()+
		" ORDER BY waited", where.Args()...)
}

// Report adds up what was counted.
func (c *Counters) Report(ctx context.Context, f Filter) (Report, error) {
	p, err := c.collect(ctx, f)
	if err != nil {
		return Report{}, err
	}
	r := noReport(f)
	r.Seq, r.Total = p.seq, p.total.sum()
	for _, deck := range foremost(p.decks, deckName{name: Other}, func(a, b deckName) int {
		return cmp.Or(cmp.Compare(a.workspace, b.workspace), cmp.Compare(a.name, b.name))
	}) {
		r.Decks = append(r.Decks, DeckSum{deck.workspace, deck.name, p.decks[deck].sum()})
	}
	if r.Agents, r.Spenders, err = c.agentSums(ctx, p.agents); err != nil {
		return Report{}, err
	}
	r.Models, r.Protocols, r.Rules = nameSums(p.models), nameSums(p.protocols), nameSums(p.rules)
	for _, day := range slices.Sorted(maps.Keys(p.days)) {
		r.Days = append(r.Days, DaySum{day, p.days[day].sum()})
	}
	for _, hour := range slices.Sorted(maps.Keys(p.hours)) {
		r.Hours = append(r.Hours, HourSum{hour, p.hours[hour].sum()})
	}
	if p.oldest != nil {
		age := max(0, c.now().Sub(*p.oldest).Seconds())
		r.OldestWaiting, r.OldestWaitingSeconds = p.oldest, &age
	}
	return r, nil
}

// noReport is a report of nothing.
func noReport(f Filter) Report {
	return Report{
		From: f.From, To: f.To, Decks: []DeckSum{}, Agents: []AgentSum{}, Models: []NameSum{}, Protocols: []NameSum{},
		Rules: []NameSum{}, Days: []DaySum{}, Hours: []HourSum{},
	}
}

// maxParts is how many parts of a kind a report names. There are as many as agents name, and nobody reads thousands.
const maxParts = wire.MaxPage

// foremost are the keys of the parts that a report names, in order. If there are too many, those that cost most
// remain, and the others become one under the key other, so that the parts are always the whole.
func foremost[K comparable](all map[K]*part, other K, compare func(a, b K) int) []K {
	keys := slices.SortedFunc(maps.Keys(all), compare)
	if len(keys) <= maxParts {
		return keys
	}
	slices.SortStableFunc(keys, func(a, b K) int { return cmp.Compare(all[b].CostNano, all[a].CostNano) })
	rest := &part{}
	for _, key := range keys[maxParts-1:] {
		rest.merge(all[key])
	}
	keys = append(slices.DeleteFunc(keys[:maxParts-1], func(key K) bool {
		if key != other {
			return false
		}
		rest.merge(all[key])
		return true
	}), other)
	all[other] = rest
	slices.SortFunc(keys, compare)
	return keys
}

// nameSums are the parts of models, protocols or rules, the dearest first and then by name.
func nameSums(all map[string]*part) []NameSum {
	sums := []NameSum{}
	for _, name := range foremost(all, Other, func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].CostNano, all[a].CostNano), cmp.Compare(a, b))
	}) {
		sums = append(sums, NameSum{name, all[name].sum()})
	}
	return sums
}

// spenders are the agents that cost the most, if anything.
func spenders(all []AgentSum) []AgentSum {
	all = slices.DeleteFunc(slices.Clone(all), func(a AgentSum) bool { return a.Counts.CostUSD == 0 })
	slices.SortStableFunc(all, func(a, b AgentSum) int { return cmp.Compare(b.Counts.CostUSD, a.Counts.CostUSD) })
	return all[:min(len(all), maxSpenders)]
}

// Await waits until the entry is counted, on whichever node that happens, or the time is up,
// which is no error.
func (c *Counters) Await(ctx context.Context, seq int64, most time.Duration) error {
	for began := time.Now(); ; ledger.Pause(ctx, nil, lookAgain) {
		at, err := position(ctx, c.db.Read)
		if err != nil || at >= seq || time.Since(began) >= most {
			return err
		}
	}
}

// agentSums adds the names of the agents to their sums, and finds who spends the most. One that was removed has no
// name.
func (c *Counters) agentSums(ctx context.Context, all map[agentOf]*part) (sums, most []AgentSum, err error) {
	sums, ids := []AgentSum{}, []string{}
	other := agentOf{agent: Other}
	for _, at := range foremost(all, other, func(a, b agentOf) int {
		return cmp.Or(cmp.Compare(a.workspace, b.workspace), cmp.Compare(a.agent, b.agent))
	}) {
		sums = append(sums, AgentSum{Workspace: at.workspace, ID: at.agent, Counts: all[at].sum()})
		ids = append(ids, at.agent)
	}
	names, err := c.roster.AgentNames(ctx, ids)
	for i := range sums {
		if sums[i].Name = names[sums[i].ID]; sums[i].ID == Other {
			sums[i].ID, sums[i].Name = "", Other
		}
	}
	slices.SortFunc(sums, func(a, b AgentSum) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return sums, spenders(slices.DeleteFunc(slices.Clone(sums), func(a AgentSum) bool { return a.Name == Other })), err
}
