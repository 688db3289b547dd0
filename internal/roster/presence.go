package roster

import (
	"context"
	"time"

	"signalbox/internal/store"
)

// onlineFor is how long an agent counts as online after it was seen.
const onlineFor = 90 * time.Second

// An agent is online if it was seen in the last 90 seconds, by any node, or holds a
// connection. Each node keeps what it has seen in memory and saves it every five seconds, so
// another node may be that much behind. A crash loses at most those seconds.

// Connected says that the agent holds a connection, and so is online, until release
// is called.
func (r *Roster) Connected(agentID string) (release func()) { return r.presence.Hold(agentID) }

// presenceOf combines what is saved, by any node, with what this node has seen since.
func (r *Roster) presenceOf(agent string, saved int64) (online bool, lastSeen *time.Time) {
	now := r.now()
	lastSeen = store.Moment(max(saved, r.presence.Last(agent, now.UnixMicro())))
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
