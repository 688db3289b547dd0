package handoff

import (
	"context"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Filter selects handoffs. Zero fields select everything that the caller may see.
type Filter struct {
	Workspace string
	Agent     string // the name or id of an agent that has handed on, or was handed the work
	User      string // the name, id or e-mail of the user on whose behalf
	Work      string
	All       bool // those that are over too
}

// List lists handoffs, the newest first, and the cursor of the next page, "" at the end.
func (h *Handoffs) List(ctx context.Context, f Filter, page wire.Paging) ([]Handoff, string, error) {
	after, err := wire.ParseCursor(page.Cursor, 1)
	if err != nil {
		return nil, "", err
	}
	workspace, visible := wire.Within(ctx, f.Workspace)
	if !visible {
		return []Handoff{}, "", nil
	}
	var where store.Where
	where.Equal("workspace", workspace)
	where.Equal("work", f.Work)
	agent, users, err := h.resolve(ctx, workspace, f)
	if err != nil {
		return nil, "", err
	}
	if agent != "" {
		where.And("(sender = %[1]s OR receiver = %[1]s)", agent)
	}
	if users != nil {
		where.In("user_id", users)
	}
	if !f.All {
		where.And("ended_at = 0 AND ends_at > %s", h.now().UnixMicro())
	}
	if after[0] != "" {
		where.And("id < %s", after[0])
	}
	where.And("id <> ''")
	ids, err := store.All(h.db.Reading(ctx), store.Text, "SELECT id FROM handoff WHERE "+where.String()+
		" ORDER BY id DESC LIMIT "+where.Mark(page.Limit+1), where.Args()...)
	if err != nil {
		return nil, "", err
	}
	next := ""
	if len(ids) > page.Limit {
		ids = ids[:page.Limit]
		next = wire.Cursor(ids[len(ids)-1])
	}
	all, p := make([]Handoff, 0, len(ids)), h.ledger.Prover(ctx)
	for _, handoffID := range ids {
		chain, err := h.chain(ctx, p, handoffID)
		if err != nil {
			return nil, "", err
		}
		if one := h.shown(chain); f.All || one.Over == "" { // it may be over with one above it
			all = append(all, one)
		}
	}
	return all, next, nil
}

// resolve finds the ids of the agent and the users that a filter names, "" and nil for all. An id is looked for as it
// is, since who has it may be gone.
func (h *Handoffs) resolve(ctx context.Context, workspace string, f Filter) (agent string, users []string, err error) {
	if agent = f.Agent; agent != "" && !id.Is("agent", agent) {
		found, err := h.roster.SeenAgent(ctx, workspace, agent)
		if err != nil {
			return "", nil, err
		}
		agent = found.ID
	}
	if f.User == "" || id.Is("usr", f.User) {
		if f.User != "" {
			users = []string{f.User}
		}
		return agent, users, nil
	}
	all, err := h.roster.Users(ctx, workspace)
	if err != nil {
		return "", nil, err
	}
	for i := range all {
		if all[i].IsNamed(f.User) {
			users = append(users, all[i].ID)
		}
	}
	if users == nil {
		return "", nil, fault.New(fault.NotFound, "There is no user %.80q. `signalbox users ls` lists those there are.",
			f.User).About("user")
	}
	return agent, users, nil
}

// shown is the last handoff of a chain, with what holds of it now.
func (h *Handoffs) shown(chain []hop) Handoff {
	last := chain[len(chain)-1].Handoff
	last.Over = overIn(chain, h.now())
	if h.spent != nil && last.Budget != (policy.Budget{}) && last.Over == "" {
		last.Spent = h.spent(last.ID)
	}
	return last
}

// OldestBudget is the number of the entry that opened the oldest handoff with a budget that is not over, 0 if there is
// none. What was used since then has to be counted.
func (h *Handoffs) OldestBudget(ctx context.Context) (seq int64, err error) {
	err = h.db.QueryRow(ctx, "SELECT COALESCE(MIN(opened_seq), 0) FROM handoff WHERE budgeted AND ended_at = 0 AND ends_at > $1",
		[]any{h.now().UnixMicro()}, &seq)
	return seq, err
}

// HasBudget reports whether an entry opens a handoff with a budget.
func HasBudget(e *ledger.Entry) bool {
	b, err := ledger.Read[opened](e)
	return err != nil || b.Budget != policy.Budget{} // one that cannot be read may have one
}

// Above are the ids of a handoff and of all above it.
func (h *Handoffs) Above(handoffID string) (ids []string, err error) {
	ctx := context.Background()
	chain, err := h.chains.Get(handoffID, func() ([]hop, error) { return h.chain(ctx, h.ledger.Prover(ctx), handoffID) })
	for i := range chain {
		ids = append(ids, chain[i].ID)
	}
	return ids, err
}

// WorkOf is what a protocol has handed on with a handoff, or with the nearest one above it that it has opened: the id of
// its piece of work, "" for none.
func (h *Handoffs) WorkOf(handoffID, protocol string) (work string, err error) {
	if handoffID == "" {
		return "", nil
	}
	ctx := context.Background()
	chain, err := h.chains.Get(handoffID, func() ([]hop, error) { return h.chain(ctx, h.ledger.Prover(ctx), handoffID) })
	for i := range chain {
		if chain[i].Protocol == protocol {
			work = chain[i].Work
		}
	}
	return work, err
}

// Below are the handoffs that a protocol has opened for a piece of work, and of all below them, also of those
// that are over.
func (h *Handoffs) Below(ctx context.Context, w Work) (all []Handoff, err error) {
	found, err := store.All(h.db.Reading(ctx), store.Text,
		"SELECT id FROM handoff WHERE workspace = $1 AND work = $2 ORDER BY id", w.Workspace, w.ID)
	p := h.ledger.Prover(ctx)
	for i := 0; i < len(found) && err == nil; i++ {
		var one Handoff
		if one, err = read(p, found[i]); err != nil || one.Protocol != w.Protocol || one.Work != w.ID || one.Workspace != w.Workspace {
			continue // what an agent has opened by itself may say anything
		}
		var chain []ledger.Entry
		chain, err = p.Entries(ledger.Query{Workspace: w.Workspace, Trace: one.trace, Kinds: []string{Opened}})
		inside := map[string]bool{one.ID: true}
		all = append(all, one)
		for k := range chain { // each after the one above it
			var below Handoff
			if below.follow(&chain[k]) == nil && inside[below.Parent] && !inside[below.ID] {
				inside[below.ID], all = true, append(all, below)
			}
		}
	}
	return all, err
}

// Chain is a handoff and all above it, the first one first, for those who may see it.
func (h *Handoffs) Chain(ctx context.Context, by roster.Identity, handoffID string) ([]Handoff, error) {
	p := h.ledger.Prover(ctx)
	if _, err := h.visible(ctx, p, by, handoffID); err != nil {
		return nil, err
	}
	chain, err := h.chain(ctx, p, handoffID)
	all := make([]Handoff, len(chain))
	for i := range chain {
		all[i] = h.shown(chain[:i+1])
	}
	return all, err
}

// visible reads a handoff for somebody. For an operator who is confined to another workspace, and for an agent that
// neither handed it on nor got it, it does not exist.
func (h *Handoffs) visible(ctx context.Context, p ledger.Prover, by roster.Identity, handoffID string) (Handoff, error) {
	found, err := read(p, handoffID)
	if err != nil {
		return Handoff{}, err
	}
	if !wire.InScope(ctx, found.Workspace) ||
		by.Kind == roster.HolderAgent && (by.Workspace != found.Workspace || by.ID != found.from && by.ID != found.to) {
		return Handoff{}, notFound(handoffID)
	}
	return found, nil
}
