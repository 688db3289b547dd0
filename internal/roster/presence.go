package roster

import (
	"context"
	"slices"
	"sync"
	"time"

	"signalbox/internal/store"
)

const (
	// onlineFor is how long an agent counts as online after it was seen.
	onlineFor = 90 * time.Second
	// saveEvery is how often what was seen is saved, for other nodes and for later.
	saveEvery = 5 * time.Second
	// saveTime bounds the saving, so that it does not keep a server from stopping.
	saveTime = 5 * time.Second
	// saveRows is how many agents are saved in one statement.
	saveRows = 1000
)

// An agent is online if it was seen in the last 90 seconds, by any node, or holds a
// connection. Each node keeps what it has seen in memory and saves it every five seconds, so
// another node may be that much behind. A crash loses at most those seconds.

// presence is when agents were last seen by this node.
//
// It is not state: nothing is decided by it, every call would write an entry, and losing its
// last seconds in a crash does no harm. So it is kept beside the ledger, in a table of its own
// that a rebuild leaves alone.
type presence struct {
	mu   sync.Mutex
	seen map[string]int64 // what is not saved yet: agents, and microseconds
	held map[string]int   // open connections of agents
}

// sighting is when an agent was seen, in microseconds.
type sighting struct {
	agent string
	at    int64
}

// noteSeen notes that an agent was seen. Times never go back, since calls may arrive out of order.
func (p *presence) noteSeen(agent string, at int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[agent] = max(p.seen[agent], at)
}

// last is when this node has last seen the agent, in microseconds, 0 if that is saved already
// or it never has. An agent with an open connection is seen now.
func (p *presence) last(agent string, now int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.held[agent] > 0 {
		return now
	}
	return p.seen[agent]
}

// unsaved is what should be saved. It is kept until saved is called, so that an agent does not
// look offline while it is being written.
func (p *presence) unsaved(now int64) []sighting {
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
func (p *presence) saved(all []sighting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range all {
		if p.seen[s.agent] == s.at {
			delete(p.seen, s.agent)
		}
	}
}

// Connected says that the agent holds a connection, and so is online, until release
// is called.
func (r *Roster) Connected(agentID string) (release func()) {
	p := &r.presence
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[agentID]++
	return sync.OnceFunc(func() {
		p.noteSeen(agentID, r.now().UnixMicro())
		p.mu.Lock()
		defer p.mu.Unlock()
		p.held[agentID]--
		if p.held[agentID] == 0 {
			delete(p.held, agentID)
		}
	})
}

// presenceOf combines what is saved, by any node, with what this node has seen since.
func (r *Roster) presenceOf(agent string, saved int64) (online bool, lastSeen *time.Time) {
	now := r.now()
	lastSeen = store.Moment(max(saved, r.presence.last(agent, now.UnixMicro())))
	return lastSeen != nil && now.Sub(*lastSeen) < onlineFor, lastSeen
}

// Presence is whether an agent is there.
type Presence struct {
	Online, Suspended bool
	LastSeenAt        *time.Time
}

// EachPresence goes through all agents, of one workspace or of all for "".
func (r *Roster) EachPresence(ctx context.Context, workspace string, fn func(Presence)) error {
	now := r.now().UnixMicro()
	return store.Each(r.db.Reading(ctx), func(scan store.Scan) error {
		var p Presence
		var agent string
		var until, seen int64
		if err := scan(&agent, &p.Suspended, &until, &seen); err != nil {
			return err
		}
		p.Suspended = suspendedAt(p.Suspended, until, now)
		p.Online, p.LastSeenAt = r.presenceOf(agent, seen)
		fn(p)
		return nil
	}, "SELECT a.id, a.suspended, a.suspended_until, COALESCE(p.seen_at, 0) FROM agent a LEFT JOIN agent_presence p ON "+
		"p.agent = a.id WHERE $1 = '' OR a.workspace = $1", workspace)
}

// keepPresence saves what was seen until ctx ends, and once more then.
func (r *Roster) keepPresence(ctx context.Context) {
	r.warn(ctx, r.bookkeeping(ctx, func(tx *store.Tx) {
		tx.Exec("DELETE FROM agent_presence WHERE agent NOT IN (SELECT id FROM agent)")
	}))
	for {
		select {
		case <-time.After(saveEvery):
			r.warn(ctx, r.savePresence(ctx))
		case <-ctx.Done():
			ending := context.WithoutCancel(ctx)
			r.warn(ending, r.savePresence(ending))
			return
		}
	}
}

// warn logs an error of saving presence. Nothing else has to be done: the next save repeats it.
func (r *Roster) warn(ctx context.Context, err error) {
	if err != nil && ctx.Err() == nil {
		r.log.Warn("cannot save presence of agents", "error", err.Error())
	}
}

// savePresence writes what was seen since the last time, many agents in one statement.
func (r *Roster) savePresence(ctx context.Context) error {
	all := r.presence.unsaved(r.now().UnixMicro())
	if len(all) == 0 {
		return nil
	}
	err := r.bookkeeping(ctx, func(tx *store.Tx) {
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
		r.presence.saved(all)
	}
	return err
}

// bookkeeping runs a transaction beside the ledger.
func (r *Roster) bookkeeping(ctx context.Context, fn func(*store.Tx)) error {
	ctx, cancel := context.WithTimeout(ctx, saveTime)
	defer cancel()
	return r.db.Bookkeep(ctx, "ledger_tree", func(tx *store.Tx) error {
		fn(tx)
		return nil
	})
}
