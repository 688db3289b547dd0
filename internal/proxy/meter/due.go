package meter

import (
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/clock"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/price"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Due is the body of proxy.due: something that will have cost money when the provider is done with it, a batch or a
// response that is made in the background, with what it may cost at most. That counts for budgets at once. What it has
// cost takes its place when it is known (Settle). A file with the requests of a batch is noted in the same way, and
// counts nothing.
type Due struct {
	behalf.Of
	Agent    string `json:"agent"`
	Project  string `json:"project,omitzero"`
	Run      string `json:"run,omitzero"`
	Provider string `json:"provider"`
	What     string `json:"what"` // Batch, Response or File
	ID       string `json:"id"`   // the provider's
	Model    string `json:"model,omitzero"`
	Requests int    `json:"requests,omitzero"`
	price.Usage
	price.Cost
}

// What is due.
const (
	Batch    = "batch"
	Response = "response"
	File     = "file"
)

// Bill is what was used of one model.
type Bill struct {
	Model   string
	Results int
	price.Usage
	price.Cost
}

// settled is the body of proxy.settled: what was due is counted, and its estimate no longer. Due is nil where nothing
// was, as for a batch that was not made through us.
type settled struct {
	Provider string `json:"provider"`
	ID       string `json:"id"`
	Due      *Due   `json:"due,omitzero"`
}

// filed is the body of proxy.filed: the results of a batch are in a file.
type filed struct {
	Provider string `json:"provider"`
	ID       string `json:"id"`
	File     string `json:"file"`
}

// Note queues the entry of something that is due.
func (m *Meter) Note(workspace, actor string, d *Due) {
	d.Model, d.ID, d.Run = Clip(d.Model), Clean(d.ID), Clean(d.Run)
	m.Append(ledger.Event{Workspace: workspace, Kind: kindDue, Actor: actor, Subject: d.ID, Body: d})
}

// row is what the table has of something that is due.
type row struct {
	id, workspace string
	settled       bool
	due           *Due // nil for what was counted and was never due
}

// find reads what is due under an id, or whose results are in a file; nil if there is none.
func find(query store.Query, provider, column, id string) (*row, error) {
	found, err := store.All(query, func(scan store.Scan) (r row, err error) {
		var body []byte
		if err = scan(&r.id, &r.workspace, &r.settled, &body); err == nil && len(body) > 0 {
			r.due = &Due{}
			err = wire.UnmarshalPart(body, r.due)
		}
		return r, err
	}, "SELECT id, workspace, settled, body FROM proxy_due WHERE provider = $1 AND "+column+" = $2", provider, id)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// FileOf is what a file of requests was noted with, nil if it was not seen.
func (m *Meter) FileOf(query store.Query, provider, id string) (*Due, error) {
	r, err := find(query, provider, "id", id)
	if err != nil || r == nil || r.due == nil || r.due.What != File {
		return nil, err
	}
	return r.due, nil
}

// Result is what was fetched: the results of a batch by its id or by the file that they are in, or a response.
type Result struct {
	Provider, What, ID string // What is Batch, Response or File
	Bills              []Bill
	Call               string // method and path
	Status             int

	only bool // if it was due
}

// Settle counts what was due and is known now, for whoever made it, once. by is who has fetched it: results of a batch
// that was not made through us count for them. A response that was not due was counted when it was made.
func (m *Meter) Settle(by Group, r Result) {
	m.Later(func(tx *ledger.Tx) error {
		column := "id"
		if r.What == File {
			column = "file"
		}
		was, err := find(tx.Query, r.Provider, column, r.ID)
		if err == nil && was == nil && r.What == File {
			was, err = find(tx.Query, r.Provider, "id", r.ID)
		}
		if err != nil || was != nil && was.settled || was == nil && (r.What == Response || r.only) {
			return err
		}
		if was != nil && was.due != nil && was.due.What == File {
			return nil // the requests of a batch, and not its results
		}
		settle(tx, was, by, r)
		return nil
	})
}

// settle writes what something has cost, for who made it, or who has fetched it if that was not seen.
func settle(tx *ledger.Tx, was *row, by Group, r Result) {
	end := settled{Provider: r.Provider, ID: r.ID}
	calls := &Calls{Of: by.Of, Agent: by.Agent, Project: by.Project}
	run := ""
	if was != nil {
		d := was.due
		by.Workspace, end.ID, end.Due = was.workspace, was.id, d
		calls.Of, calls.Agent, calls.Project, run = d.Of, d.Agent, d.Project, d.Run
	}
	for _, one := range r.Bills {
		calls.Calls = append(calls.Calls, &Called{
			At: tx.Now().UnixMicro(), Provider: r.Provider, Call: r.Call, Status: r.Status, Model: one.Model, Batch: Clean(end.ID),
			Results: one.Results, Usage: one.Usage, Cost: one.Cost, Priced: !one.Unpriced(), Run: run,
		})
	}
	if len(calls.Calls) > 0 {
		tx.Append(ledger.Event{
			Workspace: by.Workspace, Kind: KindCalled, Actor: by.Actor, Subject: calls.Agent, Body: calls,
		})
	}
	end.ID = Clean(end.ID)
	tx.Append(ledger.Event{Workspace: by.Workspace, Kind: kindSettled, Actor: by.Actor, Subject: end.ID, Body: end})
}

// Unpaid settles a batch that has ended without a result.
func (m *Meter) Unpaid(by Group, provider, id string) {
	m.once("unpaid "+provider+" "+id, func() { m.Settle(by, Result{Provider: provider, What: Batch, ID: id, only: true}) })
}

// once does something that a provider says again and again.
func (m *Meter) once(key string, do func()) {
	m.mu.Lock()
	known := m.filed[key]
	if len(m.filed) >= maxRuns {
		clear(m.filed)
	}
	m.filed[key] = true
	m.mu.Unlock()
	if !known {
		do()
	}
}

// Filed remembers that the results of a batch are in a file, as the provider says of the batch.
func (m *Meter) Filed(actor, provider, id, file string) {
	m.once("file "+provider+" "+file, func() { m.fileLater(actor, provider, id, file) })
}

// fileLater queues the entry.
func (m *Meter) fileLater(actor, provider, id, file string) {
	m.Later(func(tx *ledger.Tx) error {
		was, err := find(tx.Query, provider, "id", id)
		if err != nil || was == nil || was.settled || was.due == nil || was.due.What != Batch {
			return err
		}
		// A file stands for one batch: another that names it is not settled by it.
		if other, err := find(tx.Query, provider, "file", file); err != nil || other != nil {
			return err
		}
		tx.Append(ledger.Event{
			Workspace: was.workspace, Kind: kindFiled, Actor: actor, Subject: Clean(id),
			Body: filed{provider, Clean(id), Clean(file)},
		})
		return nil
	})
}

// Tables are the tables of what is due and of runs, as ledger.Tables has them.
var Tables = []string{"proxy_due (provider, id)", "proxy_run (agent, run)"}

// Migration makes them.
const Migration = `
CREATE TABLE proxy_due (
  provider {text} NOT NULL,
  id {text} NOT NULL,
  file {text} NOT NULL,
  workspace {text} NOT NULL,
  at {bigint} NOT NULL,
  settled {bool} NOT NULL,
  body {blob} NOT NULL,
  PRIMARY KEY (provider, id)
) {strict};
CREATE INDEX proxy_due_file ON proxy_due (provider, file) WHERE file <> '';

CREATE TABLE proxy_run (
  agent {text} NOT NULL,
  run {text} NOT NULL,
  PRIMARY KEY (agent, run)
) {strict};
`

const (
	// doneAfter is when a provider is done with a batch: it ends batches after a day. What a batch may cost is reserved
	// until then, unless its results come before; what nobody has fetched then counts as what it may have cost.
	doneAfter = 26 * time.Hour
	// fetchable is how long providers keep the results, at the most.
	fetchable = 30 * 24 * time.Hour
)

// Timers count what was due and has not been fetched.
func Timers() map[string]clock.Handler {
	return map[string]clock.Handler{kindDue: func(tx *ledger.Tx, t clock.Timer) error {
		provider, id, _ := strings.Cut(strings.TrimPrefix(t.Subject, "due "), " ")
		was, err := find(tx.Query, provider, "id", id)
		if err != nil || was == nil || was.settled || was.due == nil {
			return err
		}
		d := was.due
		settle(tx, was, Group{Actor: "system"}, Result{
			Provider: provider, ID: id, Bills: []Bill{{Model: d.Model, Results: d.Requests, Usage: d.Usage, Cost: d.Cost}},
		})
		return nil
	}}
}

// Apply is what the entries do to the tables.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{
		kindBegan: ledger.ApplyBody(func(tx *store.Tx, _ *ledger.Entry, b *began) {
			tx.Exec("INSERT INTO proxy_run (agent, run) VALUES ($1, $2) ON CONFLICT (agent, run) DO NOTHING", b.Agent, b.Run)
		}),
		kindDue: ledger.TryBody(func(tx *store.Tx, e *ledger.Entry, b *Due) error {
			body, err := wire.Marshal(b)
			if b.What != File {
				clock.Set(tx, clock.Timer{Kind: kindDue, Subject: b.reserve(), Workspace: e.Workspace, Due: e.At.Add(doneAfter)})
			}
			tx.Exec("DELETE FROM proxy_due WHERE at < $1", e.At.Add(-2*fetchable).UnixMicro())
			tx.Exec("INSERT INTO proxy_due (provider, id, file, workspace, at, settled, body) VALUES ($1, $2, '', $3, $4, $5, $6) "+
				"ON CONFLICT (provider, id) DO NOTHING", b.Provider, b.ID, e.Workspace, e.At.UnixMicro(), false, body)
			return err
		}),
		kindSettled: ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *settled) {
			if b.Due != nil {
				clock.Clear(tx, kindDue, b.Due.reserve())
			}
			tx.Exec("INSERT INTO proxy_due (provider, id, file, workspace, at, settled, body) VALUES ($1, $2, '', $3, $4, $5, $6) "+
				"ON CONFLICT (provider, id) DO UPDATE SET settled = excluded.settled", b.Provider, b.ID, e.Workspace,
				e.At.UnixMicro(), true, []byte{})
		}),
		kindFiled: ledger.ApplyBody(func(tx *store.Tx, _ *ledger.Entry, b *filed) {
			tx.Exec("UPDATE proxy_due SET file = $3 WHERE provider = $1 AND id = $2", b.Provider, b.ID, b.File)
		}),
	}
}

// belongs is whose it is.
func (d *Due) belongs() rulebook.Belongs {
	return rulebook.Belongs{
		Agent: d.Agent, User: d.User, Tier: policy.API, Project: d.Project, Run: d.Run, Handoff: d.Handoff,
	}
}

// reserve names what is reserved for it.
func (d *Due) reserve() string { return "due " + d.Provider + " " + d.ID }

// readDue is the Reader of proxy.due: what it may cost is reserved.
func readDue(e *ledger.Entry) (r rulebook.Reading, err error) {
	d, err := ledger.Read[Due](e)
	if err == nil && d.What != File {
		r.Facts = []rulebook.Fact{{Belongs: d.belongs(), Reserve: &rulebook.Reservation{
			ID: d.reserve(), CostNano: d.Nanos, Tokens: d.Tokens(), Until: e.At.Add(doneAfter).UnixMicro(),
		}}}
	}
	return r, err
}

// readSettled is the Reader of proxy.settled: what it has cost is in the entry before, and nothing is reserved any more.
func readSettled(e *ledger.Entry) (r rulebook.Reading, err error) {
	s, err := ledger.Read[settled](e)
	if err == nil && s.Due != nil {
		r.Facts = []rulebook.Fact{{Belongs: s.Due.belongs(), Release: s.Due.reserve()}}
	}
	return r, err
}
