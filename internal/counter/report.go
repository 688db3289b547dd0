package counter

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// The answers.
type (
	// Sum is everything that is counted, for a deck, an agent, a day or all of them.
	Sum struct {
		Runs         Runs    `json:"runs"`
		InputTokens  int64   `json:"input_tokens"`
		OutputTokens int64   `json:"output_tokens"`
		CostUSD      float64 `json:"cost_usd"`
		Costs        Costs   `json:"costs"`
		Gates        Tallies `json:"gates"`
		Decisions    int64   `json:"decisions"` // by people
		// MedianSeconds is how long people took to decide, nil when nobody did.
		MedianSeconds *float64 `json:"median_decision_seconds"`
	}
	// Runs are runs by status.
	Runs struct {
		Completed   int64 `json:"completed"`
		Failed      int64 `json:"failed"`
		Interrupted int64 `json:"interrupted"`
	}
	// Costs are runs by what the price table says of their cost.
	Costs struct {
		Verified     int64 `json:"verified"`
		Under        int64 `json:"under"`
		Over         int64 `json:"over"`
		UnknownModel int64 `json:"unknown_model"`
		Zero         int64 `json:"zero"`
	}
	// Tallies are gates by outcome. Waiting is how many wait now, whichever days are
	// looked at.
	Tallies struct {
		Opened   int64 `json:"opened"`
		Approved int64 `json:"approved"`
		Rejected int64 `json:"rejected"`
		Expired  int64 `json:"expired"`
		Waiting  int64 `json:"waiting"`
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
	// DaySum is a day's part. Nothing waits on a day; it waits now.
	DaySum struct {
		Day    string `json:"day"`
		Counts Sum    `json:"counts"`
	}
	// Report is what was counted from a day to another, both included.
	Report struct {
		From   string     `json:"from"`
		To     string     `json:"to"`
		Seq    int64      `json:"seq"` // the last entry that is counted
		Total  Sum        `json:"total"`
		Decks  []DeckSum  `json:"decks"`
		Agents []AgentSum `json:"agents"`
		Days   []DaySum   `json:"days"`
		// OldestWaiting is since when the gate waits that waits the longest.
		OldestWaiting        *time.Time `json:"oldest_waiting_since"`
		OldestWaitingSeconds *float64   `json:"oldest_waiting_seconds"`
		// Spenders are the agents that cost the most, of all that there are.
		Spenders []AgentSum `json:"-"`
	}
)

// maxSpenders is how many agents a report names that cost the most.
const maxSpenders = 6

// Filter selects what is looked at; zero fields select everything.
type Filter struct {
	Workspace string
	Project   string
	Agents    []string // their ids
	From, To  string   // days, which must be there
}

// where is the condition on the columns that both tables have.
func (f Filter) where() *store.Where {
	var where store.Where
	where.And("day >= %s AND day <= %s", f.From, f.To)
	where.Equal("workspace", f.Workspace)
	where.Equal("project", f.Project)
	if f.Agents != nil {
		where.In("agent", f.Agents)
	}
	return &where
}

// A report is put together from a few rows for each day, deck and agent, never from entries. A
// span of days has at most as many rows as agents were active on each of its days.

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
		Runs: Runs{p.Completed, p.Failed, p.Interrupted}, InputTokens: p.InputTokens, OutputTokens: p.OutputTokens,
		CostUSD:   float64(p.CostNano) / 1e9,
		Costs:     Costs{p.CostVerified, p.CostUnder, p.CostOver, p.CostUnknown, p.CostZero},
		Gates:     Tallies{p.GatesOpened, p.GatesApproved, p.GatesRejected, p.GatesExpired, p.waiting},
		Decisions: int64(len(p.waits)),
	}
	if n := len(p.waits); n > 0 {
		median := float64(p.waits[(n-1)/2]+p.waits[n/2]) / 2 / 1e6
		s.MedianSeconds = &median
	}
	return s
}

// agentOf is an agent in a workspace; ids are unique, and the workspace is for the answer.
type agentOf struct{ workspace, agent string }

// parts are all parts of a report.
type parts struct {
	seq    int64
	total  part
	decks  map[deckName]*part
	agents map[agentOf]*part
	days   map[string]*part
	oldest *time.Time
}

// touchedBy are the parts that a cell adds to: the total, its deck, its agent and its day, if it has
// one.
func (p *parts) touchedBy(at cell) []*part {
	all := []*part{
		&p.total, partFor(p.decks, deckName{at.workspace, at.project}),
		partFor(p.agents, agentOf{at.workspace, at.agent}),
	}
	if at.day != "" {
		all = append(all, partFor(p.days, at.day))
	}
	return all
}

// partFor is the part under a key, made on first use.
func partFor[K comparable](m map[K]*part, key K) *part {
	if m[key] == nil {
		m[key] = &part{}
	}
	return m[key]
}

// collect reads what was counted, as of one moment, and which gates wait. Gates that wait are
// read from the inbox and not from the snapshot, so they may be newer by milliseconds.
func (c *Counters) collect(ctx context.Context, f Filter) (*parts, error) {
	p := &parts{decks: map[deckName]*part{}, agents: map[agentOf]*part{}, days: map[string]*part{}}
	tx, err := c.db.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	if p.seq, err = position(ctx, tx); err != nil {
		return nil, err
	}
	if err := p.readDays(ctx, tx, f); err != nil {
		return nil, err
	}
	if err := p.readDecisions(ctx, tx, f); err != nil {
		return nil, err
	}
	waiting, oldest, err := c.gates.Waiting(ctx, gate.Filter{Workspace: f.Workspace, Project: f.Project, Agents: f.Agents})
	p.oldest = oldest
	for _, w := range waiting {
		at := cell{workspace: w.Workspace, project: cmp.Or(w.Project, DefaultDeck), agent: w.Agent} // of no day
		for _, one := range p.touchedBy(at) {
			one.waiting += w.Gates
		}
	}
	return p, err
}

// readDays adds up the rows of counter_day.
func (p *parts) readDays(ctx context.Context, tx *sql.Tx, f Filter) error {
	where := f.where()
	return store.Each(store.Reading(ctx, tx), func(scan store.Scan) error {
		var at cell
		var counts Counts
		into := []any{&at.day, &at.workspace, &at.project, &at.agent}
		for _, n := range counts.fields() {
			into = append(into, n)
		}
		if err := scan(into...); err != nil {
			return err
		}
		for _, one := range p.touchedBy(at) {
			one.add(&counts)
		}
		return nil
	}, "SELECT day, workspace, project, agent, "+strings.Join(columns, ", ")+" FROM counter_day WHERE "+where.String(),
		where.Args()...)
}

// readDecisions collects how long people took, in order, so that the median can be read off.
func (p *parts) readDecisions(ctx context.Context, tx *sql.Tx, f Filter) error {
	where := f.where()
	return store.Each(store.Reading(ctx, tx), func(scan store.Scan) error {
		var at cell
		var waited int64
		if err := scan(&at.day, &at.workspace, &at.project, &at.agent, &waited); err != nil {
			return err
		}
		for _, one := range p.touchedBy(at) {
			one.waits = append(one.waits, waited)
		}
		return nil
	}, "SELECT day, workspace, project, agent, waited FROM counter_decision WHERE "+where.String()+" ORDER BY waited",
		where.Args()...)
}

// Report adds up what was counted.
func (c *Counters) Report(ctx context.Context, f Filter) (Report, error) {
	p, err := c.collect(ctx, f)
	if err != nil {
		return Report{}, err
	}
	r := Report{
		From: f.From, To: f.To, Seq: p.seq, Total: p.total.sum(), Decks: []DeckSum{}, Agents: []AgentSum{},
		Days: []DaySum{},
	}
	for deck, one := range p.decks {
		r.Decks = append(r.Decks, DeckSum{deck.workspace, deck.name, one.sum()})
	}
	slices.SortFunc(r.Decks, func(a, b DeckSum) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Name, b.Name))
	})
	if r.Agents, err = c.agentSums(ctx, p.agents); err != nil {
		return Report{}, err
	}
	r.Spenders = spenders(r.Agents)
	for _, day := range slices.Sorted(maps.Keys(p.days)) {
		r.Days = append(r.Days, DaySum{day, p.days[day].sum()})
	}
	// There are as many as agents name, and nobody reads thousands.
	r.Decks, r.Agents = r.Decks[:min(len(r.Decks), wire.MaxPage)], r.Agents[:min(len(r.Agents), wire.MaxPage)]
	if p.oldest != nil {
		age := max(0, c.now().Sub(*p.oldest).Seconds())
		r.OldestWaiting, r.OldestWaitingSeconds = p.oldest, &age
	}
	return r, nil
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

// agentSums adds the names of the agents to their sums; one that was removed has none.
func (c *Counters) agentSums(ctx context.Context, all map[agentOf]*part) ([]AgentSum, error) {
	sums, ids := []AgentSum{}, []string{}
	for at, one := range all {
		sums, ids = append(sums, AgentSum{Workspace: at.workspace, ID: at.agent, Counts: one.sum()}), append(ids, at.agent)
	}
	names, err := c.roster.AgentNames(ctx, ids)
	for i := range sums {
		sums[i].Name = names[sums[i].ID]
	}
	slices.SortFunc(sums, func(a, b AgentSum) int {
		return cmp.Or(cmp.Compare(a.Workspace, b.Workspace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return sums, err
}
