// Package presence keeps when agents were last seen: in the memory of this node, and every few seconds in a table
// that the nodes share.
//
// It is not state: nothing is decided by it, every call would write an entry, and losing its
// last seconds in a crash does no harm. So it is kept beside the ledger, in a table of its own
// that a rebuild leaves alone. The roster owns the table, and knows what an agent is; this package must not.
package presence

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"signalbox/internal/store"
)

const (
	// saveEvery is how often what was seen is saved, for other nodes and for later.
	saveEvery = 5 * time.Second
	// saveTime bounds the saving, so that it does not keep a server from stopping.
	saveTime = 5 * time.Second
	// saveRows is how many agents are saved in one statement.
	saveRows = 1000
)

// Sightings is when agents were last seen by this node. It is safe for concurrent use.
type Sightings struct {
	db  *store.DB
	now func() time.Time
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]int64 // what is not saved yet: agents, and microseconds
	held map[string]int   // open connections of agents
}

// New makes the sightings of a node.
func New(db *store.DB, now func() time.Time, log *slog.Logger) *Sightings {
	return &Sightings{db: db, now: now, log: log, seen: map[string]int64{}, held: map[string]int{}}
}

// sighting is when an agent was seen, in microseconds.
type sighting struct {
	agent string
	at    int64
}

// Note notes that an agent was seen. Times never go back, since calls may arrive out of order.
func (p *Sightings) Note(agent string, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[agent] = max(p.seen[agent], at)
}

// Last is when this node has last seen the agent, in microseconds, 0 if that is saved already
// or it never has. An agent with an open connection is seen now.
func (p *Sightings) Last(agent string, now int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[agent] > 0 {
		return now
	}
	return p.seen[agent]
}

// unsaved is what should be saved. It is kept until saved is called, so that an agent does not
// look offline while it is being written.
func (p *Sightings) unsaved(now int64) []sighting {
	p.mu.Lock()
	defer p.mu.Unlock()
	for agent := range p.held {
		p.seen[agent] = now
	}
	out := make([]sighting, 0, len(p.seen))
	for agent, at := range p.seen {
		out = append(out, sighting{agent, at})
	}
	return out
}

// saved drops what was written, unless the agent was seen again meanwhile.
func (p *Sightings) saved(all []sighting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range all {
		if p.seen[s.agent] == s.at {
			delete(p.seen, s.agent)
		}
	}
}

// Hold says that the agent holds a connection, and so is online, until release
// is called.
func (p *Sightings) Hold(agentID string) (release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[agentID]++
	return sync.OnceFunc(func() {
		p.Note(agentID, p.now().UnixMicro())
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held[agentID]--
		if p.held[agentID] == 0 {
			delete(p.held, agentID)
		}
	})
}

// Run saves what was seen until ctx ends, and once more then.
func (p *Sightings) Run(ctx context.Context) {
	p.warn(ctx, p.bookkeeping(ctx, func(tx *store.Tx) {
		tx.Exec("DELETE FROM agent_presence WHERE agent NOT IN (SELECT id FROM agent)")
	}))
	for {
		select {
		case <-time.After(saveEvery):
			p.warn(ctx, p.save(ctx))
		case <-ctx.Done():
			ending := context.WithoutCancel(ctx)
			p.warn(ending, p.save(ending))
			return
		}
	}
}

// warn logs an error of saving presence. Nothing else has to be done: the next save repeats it.
func (p *Sightings) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		p.log.Warn("cannot save presence of agents", "error", err.Error())
	}
}

// save writes what was seen since the last time, many agents in one statement.
func (p *Sightings) save(ctx context.Context) error {
	all := p.unsaved(p.now().UnixMicro())
	if len(all) == 0 {
		return nil
	}
	err := p.bookkeeping(ctx, func(tx *store.Tx) {
		for part := range slices.Chunk(all, saveRows) {
			var args []any
			for _, s := range part {
				args = append(args, s.agent, s.at)
			}
			// Never earlier: another node may have seen the agent since.
			tx.Exec("INSERT INTO agent_presence (agent, seen_at) VALUES "+store.RowMarks(len(part), 2)+
				" ON CONFLICT (agent) DO UPDATE SET seen_at = excluded.seen_at WHERE agent_presence.seen_at < excluded.seen_at",
				args...)
		}
	})
	if err == nil {
		p.saved(all)
	}
	return err
}

// bookkeeping runs a transaction beside the ledger.
func (p *Sightings) bookkeeping(ctx context.Context, fn func(*store.Tx)) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	return p.db.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error {
		fn(tx)
		return nil
	})
}
