package price

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed" // for prices.json
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// builtin are the prices that this program brings: those of the providers on the day in their field read, and before
// that day those of the document of AMP v1.0 where it has others.
//
//go:embed prices.json
var builtin []byte

// Prices are the prices in force. The server makes one for each process; Run keeps it up to date. It may be asked at
// any time, by any goroutine.
type Prices struct {
	db     *store.DB
	ledger *ledger.Ledger
	now    func() time.Time
	log    *slog.Logger
	own    []Price // that came with the program
	force  atomic.Pointer[inForce]
}

// inForce is the table in force, with what operators have set of it.
type inForce struct {
	table *Table
	set   []Price
}

// New makes the prices of a ledger that has Projection. Until Run has read what operators have set, those that came
// with the program hold.
func New(db *store.DB, l *ledger.Ledger, now func() time.Time, log *slog.Logger) (*Prices, error) {
	p := &Prices{db: db, ledger: l, now: now, log: log}
	if err := wire.Unmarshal(builtin, &p.own); err != nil {
		return nil, fmt.Errorf("read the prices that are built in: %w", err)
	}
	table, err := NewTable(0, p.own)
	p.force.Store(&inForce{table: table})
	return p, err
}

// InForce is the table in force. It may be kept: a new version is a new table.
func (p *Prices) InForce() *Table { return p.force.Load().table }

// Cost is what a call costs that is made now.
func (p *Prices) Cost(provider, model string, u Usage) Cost {
	return p.InForce().Cost(provider, model, p.now(), u)
}

// Change is what an operator changes. Models are added, or put in place of rows for the same provider, model, day and size;
// all others stay. Removed are names of models of which everything that operators have set is taken back.
type Change struct {
	Models  []Price  `json:"models,omitempty"`
	Removed []string `json:"removed,omitempty"`
}

// Change changes prices for all workspaces, which makes the next version. An operator who is confined to one workspace
// may not. Costs that were recorded before stay as they are.
func (p *Prices) Change(ctx context.Context, by roster.Identity, c Change) (*Table, error) {
	if err := wire.Unconfined(ctx, "Prices are those of"); err != nil {
		return nil, err
	}
	if len(c.Models) == 0 && len(c.Removed) == 0 {
		return nil, fault.New(fault.InvalidPayload,
			`There is nothing to change. Name models with their prices, such as {"models":[{"model":"claude-sonnet-4-6","input":3,"output":15}]}.`).
			About("models")
	}
	today := p.now().UTC().Format(time.DateOnly)
	c.Models = slices.Clone(c.Models)
	for i := range c.Models {
		c.Models[i].Read = cmp.Or(c.Models[i].Read, today)
	}
	if _, err := NewTable(0, c.Models); err != nil { // so that a row that is there twice is found
		return nil, err
	}
	var last int64
	err := p.ledger.Write(ctx, func(tx *ledger.Tx) error {
		last = 0
		if err := tx.QueryRow("SELECT version FROM price_change ORDER BY version DESC LIMIT 1", nil, &last); err != nil &&
			!errors.Is(err, sql.ErrNoRows) {
			return err
		}
		now := p.force.Load()
		if now.table.Version != last { // another node was faster
			var err error
			if now, err = p.read(ctx); err != nil {
				return err
			}
		}
		for _, name := range c.Removed {
			if !slices.ContainsFunc(now.set, func(set Price) bool { return strings.EqualFold(set.Model, name) }) {
				return fault.New(fault.NotFound, "No operator has set a price for %.80q. `signalbox pricing ls` lists all prices.", name)
			}
		}
		if _, err := p.fold(now.set, last+1, c); err != nil {
			return err
		}
		tx.Append(ledger.Event{
			Kind: kindSet, Actor: by.Actor(), Subject: fmt.Sprintf("prices-%d", last+1), Body: set{last + 1, c},
		})
		return nil
	})
	if err != nil {
		return nil, err
	}
	err = p.load(ctx)
	return p.InForce(), err
}

// fold is what is in force after a change of what operators have set.
func (p *Prices) fold(before []Price, version int64, c Change) (*inForce, error) {
	after := slices.DeleteFunc(slices.Clone(before), func(old Price) bool {
		return slices.ContainsFunc(c.Removed, func(name string) bool { return strings.EqualFold(old.Model, name) }) ||
			slices.ContainsFunc(c.Models, func(one Price) bool { return one.same(&old) })
	})
	after = append(after, c.Models...)
	rows := slices.DeleteFunc(slices.Clone(p.own), func(own Price) bool {
		return slices.ContainsFunc(after, func(set Price) bool { return set.replaces(&own) })
	})
	table, err := NewTable(version, append(rows, after...))
	return &inForce{table, after}, err
}

// replaces reports whether a price that an operator has set holds in place of one that came with the program: it is of
// the same model, and begins no later.
func (p *Price) replaces(own *Price) bool {
	return strings.EqualFold(p.Model, own.Model) && (p.Provider == "" || p.Provider == own.Provider) && p.From <= own.From
}

// read folds all changes that are in the ledger.
func (p *Prices) read(ctx context.Context) (*inForce, error) {
	entries, err := p.ledger.Select(ctx, "JOIN price_change c ON c.seq = e.seq")
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b ledger.Entry) int { return cmp.Compare(a.Seq, b.Seq) })
	table, err := NewTable(0, p.own)
	now := &inForce{table: table}
	for i := range entries {
		if err != nil {
			return nil, err
		}
		var b set
		if err := entries[i].Decode(&b); err != nil {
			return nil, err
		}
		if entries[i].Kind == kindApplied { // which was a whole table
			now.set = nil
		}
		now, err = p.fold(now.set, b.Version, b.Change)
	}
	return now, err
}

// load puts what the ledger says in force on this node.
func (p *Prices) load(ctx context.Context) error {
	now, err := p.read(ctx)
	if err == nil {
		p.force.Store(now)
	}
	return err
}

// Run keeps prices up to date with what other nodes change, until ctx ends. An entry that cannot be read is logged: the
// prices before it stay in force.
func (p *Prices) Run(ctx context.Context) error {
	for e := range p.ledger.FollowNow(ctx, p.load) {
		if e.Kind != kindSet && e.Kind != kindApplied {
			continue
		}
		if err := p.load(ctx); err != nil {
			p.log.Error("cannot read prices; the previous ones stay", "error", err.Error())
		}
	}
	return nil
}

// Migrations make the table that finds the changes.
var Migrations = store.Migrations{Package: "price", Steps: []string{`
CREATE TABLE price_change (
  version {bigint} PRIMARY KEY,
  seq {bigint} NOT NULL
) {strict};
`}}

// The kinds of entries. They are stored.
const (
	kindSet = "prices.set"
	// kindApplied replaced the whole table; versions up to 0.1 wrote it.
	kindApplied = "prices.applied"
)

// set is the body of both.
type set struct {
	Version int64 `json:"version"`
	Change
}

// Projection finds the changes.
func Projection() ledger.Projection {
	apply := ledger.ApplyBody(func(tx *store.Tx, e *ledger.Entry, b *set) {
		tx.Exec("INSERT INTO price_change (version, seq) VALUES ($1, $2)", b.Version, e.Seq)
	})
	return ledger.Projection{
		Name: "price", Tables: ledger.Tables("price_change (version)"),
		Apply: map[string]ledger.Apply{kindSet: apply, kindApplied: apply},
	}
}
