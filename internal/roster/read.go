package roster

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster/key"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Methods that are named List… take what a request says, and return what its caller may see.
// The others trust their arguments, and are for code that has checked them.

// agents reads agents that meet a condition, with their owners, presence and public keys: two
// queries, however many there are.
func (r *Roster) agents(query store.Query, where string, args ...any) ([]Agent, error) {
	all, err := store.All(query, r.scanAgent,
		`SELECT a.id, a.name, a.workspace, a.address, COALESCE(o.name, ''), a.trust, a.labels, a.rate_limit,
  a.suspended, a.suspended_until, a.added_at, COALESCE(p.seen_at, 0)
FROM agent a LEFT JOIN owner o ON o.id = a.owner LEFT JOIN agent_presence p ON p.agent = a.id WHERE `+where, args...)
	if err == nil && len(all) > 0 {
		err = addPublicKeys(query, all)
	}
	return all, err
}

// scanAgent reads a row of agents. A suspension that is over is not shown, though the column
// stays until somebody resumes the agent.
func (r *Roster) scanAgent(scan func(...any) error) (Agent, error) {
	a := Agent{PublicKeys: []PublicKey{}}
	var labels []byte
	var added, seen, until int64
	if err := scan(&a.ID, &a.Name, &a.Workspace, &a.Address, &a.Owner, &a.Trust, &labels, &a.RateLimit, &a.Suspended,
		&until, &added, &seen); err != nil {
		return a, err
	}
	if a.Suspended = suspendedAt(a.Suspended, until, r.now().UnixMicro()); a.Suspended {
		a.SuspendedUntil = store.Moment(until)
	}
	a.AddedAt = time.UnixMicro(added).UTC()
	a.Online, a.LastSeenAt = r.presenceOf(a.ID, seen)
	return a, wire.Unmarshal(labels, &a.Labels)
}

// agent finds one agent of a workspace by name, or by id, and checks that the ledger says the same of it.
func (r *Roster) agent(p ledger.Prover, workspace, name string) (found Agent, err error) {
	agree, err := ledger.Agree(func() (bool, error) {
		all, err := r.agents(p.Query, "a.workspace = $1 AND (a.name = $2 OR a.id = $2)", workspace, name)
		if err != nil {
			return false, err
		}
		if len(all) == 0 {
			return false, fault.New(fault.NotFound,
				"There is no agent %.80q in workspace %q. `signalbox agents ls` lists those there are.", name, workspace)
		}
		found = all[0]
		f, _, err := prove(p, found.ID, "")
		found.owner, found.actsFor, found.Scopes = f.who.Owner, f.who.ActsFor, f.who.Scopes
		found.OIDCClient = f.who.OIDCClient
		return f.isOfAgent(&found, r.now().UnixMicro()), err
	})
	if err == nil && agree && len(found.actsFor) > 0 {
		found.ActsFor, err = r.userNames(p, workspace, found.actsFor)
	}
	if err == nil && !agree {
		err = contradicted(p, "agent", found.ID, found.Name)
	}
	return found, err
}

// Agent finds one agent of a workspace by name, or by id.
func (r *Roster) Agent(ctx context.Context, workspace, name string) (Agent, error) {
	return r.agent(r.ledger.Prover(ctx), workspace, name)
}

// AgentIDs are the ids of the agents with a name, in one workspace or in all for "". An id is
// returned as it is, also if its agent was removed: its past can still be listed.
func (r *Roster) AgentIDs(ctx context.Context, workspace, name string) ([]string, error) {
	if id.Is("agent", name) {
		return []string{name}, nil
	}
	return store.All(r.db.Reading(ctx), store.Text,
		"SELECT id FROM agent WHERE name = $1 AND ($2 = '' OR workspace = $2) ORDER BY id LIMIT 1000", name, workspace)
}

// AgentNames are the names of agents, by their ids. Agents that were removed are left out.
func (r *Roster) AgentNames(ctx context.Context, ids []string) (map[string]string, error) {
	names := map[string]string{}
	for part := range slices.Chunk(ids, wire.MaxPage) {
		var where store.Where
		where.In("id", part)
		some, err := store.Map[string, string](r.db.Reading(ctx), "SELECT id, name FROM agent WHERE "+where.String(),
			where.Args()...)
		if err != nil {
			return nil, err
		}
		maps.Copy(names, some)
	}
	return names, nil
}

// Agents lists agents by workspace and name, after the given ones.
func (r *Roster) Agents(ctx context.Context, workspace string, after [2]string, limit int) ([]Agent, error) {
	return r.agents(r.db.Reading(ctx),
		"(a.workspace, a.name) > ($1, $2) AND ($3 = '' OR a.workspace = $3) ORDER BY a.workspace, a.name LIMIT $4",
		after[0], after[1], workspace, limit)
}

// ListAgents is a page of the agents of a workspace, or of all for "", as far as the caller
// may see them.
func (r *Roster) ListAgents(ctx context.Context, workspace, cursor string, limit int) (AgentPage, error) {
	page := AgentPage{Agents: []Agent{}}
	after, err := wire.ParseCursor(cursor, 2)
	if err != nil {
		return page, err
	}
	workspace, visible := wire.Within(ctx, workspace)
	if !visible {
		return page, nil
	}
	if page.Agents, err = r.Agents(ctx, workspace, [2]string(after), limit); err != nil {
		return page, err
	}
	if len(page.Agents) == limit {
		last := page.Agents[limit-1]
		page.Next = wire.Cursor(last.Workspace, last.Name)
	}
	return page, nil
}

// Correspondents lists the agents of a workspace that have a public key by name: those
// that have registered for mail.
func (r *Roster) Correspondents(ctx context.Context, workspace string) ([]Agent, error) {
	return r.agents(r.db.Reading(ctx),
		"a.workspace = $1 AND EXISTS (SELECT 1 FROM agent_public_key k WHERE k.agent = "+
			"a.id AND k.retired_at = 0) ORDER BY a.name", workspace)
}

// Operators lists the operators by name: all, or those confined to a workspace.
func (r *Roster) Operators(ctx context.Context, workspace string) ([]Person, error) {
	all, err := store.All(r.db.Reading(ctx), scanPerson, selectPerson+" WHERE $1 = '' OR workspace = $1 ORDER BY name",
		workspace)
	if err != nil {
		return nil, err
	}
	return all, addContacts(r.db.Reading(ctx), all)
}

// Workspaces lists the workspaces that the caller may see.
func (r *Roster) Workspaces(ctx context.Context, scope string) ([]string, error) {
	return store.All(r.db.Reading(ctx), store.Text, "SELECT name FROM workspace WHERE $1 = '' OR name = $1 ORDER BY name",
		scope)
}

// Keys lists the keys of a workspace, or all for ""; of one holder by its id, or of
// all for "".
func (r *Roster) Keys(ctx context.Context, workspace, holder, after string, limit int) ([]Key, error) {
	return store.All(r.db.Reading(ctx), scanKey,
		"SELECT "+keyColumns+withHolder+`WHERE k.id > $1 AND ($2 = '' OR k.holder = $2)
AND ($3 = '' OR COALESCE(a.workspace, o.workspace, w.workspace) = $3) ORDER BY k.id LIMIT $4`, after, holder, workspace,
		limit)
}

// ListKeys is a page of keys that the caller may see: those of an agent, or of a workspace, or
// all.
func (r *Roster) ListKeys(ctx context.Context, agent, workspace, cursor string, limit int) (KeyPage, error) {
	after, err := wire.ParseCursor(cursor, 1)
	if err != nil {
		return KeyPage{}, err
	}
	holder := ""
	if agent != "" {
		in, err := WorkspaceOf(ctx, workspace)
		if err != nil {
			return KeyPage{}, err
		}
		a, err := r.Agent(ctx, in, agent)
		if err != nil {
			return KeyPage{}, err
		}
		holder = a.ID
	}
	keys, err := r.Keys(ctx, cmp.Or(wire.Scope(ctx), workspace), holder, after[0], limit)
	page := KeyPage{Keys: keys}
	if err == nil && len(keys) == limit {
		page.Next = wire.Cursor(keys[limit-1].ID)
	}
	return page, err
}

// keyColumns are what scanKey reads; the tables are those of withHolder.
const keyColumns = "k.id, k.kind, k.hint, k.rate_limit, k.issued_at, k.expires_at, k.revoked_at, a.name, o.name, " +
	"w.name, COALESCE(a.workspace, o.workspace, w.workspace, '')"

// scanKey reads a row of keyColumns; one of agent, operator and owner is set.
func scanKey(scan func(...any) error) (Key, error) {
	var k Key
	var issued, expires, revoked int64
	var agent, operator, owner sql.NullString
	if err := scan(&k.ID, &k.Kind, &k.Hint, &k.RateLimit, &issued, &expires, &revoked, &agent, &operator, &owner,
		&k.Workspace); err != nil {
		return k, err
	}
	k.Agent, k.Operator, k.Owner = agent.String, operator.String, owner.String
	k.IssuedAt, k.ExpiresAt, k.RevokedAt = time.UnixMicro(issued).UTC(), store.Moment(expires), store.Moment(revoked)
	return k, nil
}

// Knows reports whether there is or was such a key, valid or not.
func (r *Roster) Knows(ctx context.Context, secret string) (bool, error) {
	var n int
	err := r.db.Read.QueryRowContext(ctx, "SELECT count(*) FROM access_key WHERE hash = $1", key.Hash(secret)).Scan(&n)
	return n > 0, err
}

// WorkspaceOfAgent is the workspace of the agent with the id, "" if there is no such agent.
func (r *Roster) WorkspaceOfAgent(ctx context.Context, agentID string) (workspace string, err error) {
	err = r.db.QueryRow(ctx, "SELECT workspace FROM agent WHERE id = $1", []any{agentID}, &workspace)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return workspace, err
}

// Online counts the agents that were seen lately, by what is saved.
func (r *Roster) Online(ctx context.Context) (n int64, err error) {
	err = r.db.QueryRow(ctx, "SELECT count(*) FROM agent_presence WHERE seen_at > $1",
		[]any{r.now().Add(-onlineFor).UnixMicro()}, &n)
	return n, err
}
