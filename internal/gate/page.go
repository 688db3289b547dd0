package gate

import (
	"context"
	"strconv"

	"signalbox/internal/wire"
)

// Selection says which gates a caller wants to see; empty fields select everything. It is
// what a request says; a workspace that the caller may not see selects nothing.
type Selection struct {
	Status    string // pending, approved or rejected
	Workspace string
	Project   string
	Agent     string // its name or id
	User      string // on whose behalf: a name, an id or an e-mail
	Claimed   bool   // those that only claim to be on behalf of the user, instead
	Cursor    string // GatePage.Next of the page before
	Limit     int    // 1 to wire.MaxPage
}

// Page lists gates as List does, as far as the caller may see them.
func (g *Gates) Page(ctx context.Context, s Selection) (GatePage, error) {
	none := GatePage{Gates: []Gate{}}
	status, err := parseStatus(s.Status)
	if err != nil {
		return none, err
	}
	after, err := parsePlace(s.Cursor)
	if err != nil {
		return none, err
	}
	workspace, visible := wire.Within(ctx, s.Workspace)
	if !visible {
		return none, nil
	}
	f := Filter{Status: status, Workspace: workspace, Project: s.Project}
	if s.Agent != "" {
		if f.Agents, err = g.roster.AgentIDs(ctx, workspace, s.Agent); err != nil || len(f.Agents) == 0 {
			return none, err
		}
	}
	if s.User != "" {
		if f.For, err = g.index.Keys(ctx, workspace, s.User, s.Claimed); err != nil {
			return none, err
		}
	}
	gates, next, err := g.List(ctx, f, after, s.Limit)
	if err != nil {
		return none, err
	}
	for i := range gates {
		gates[i].Digest = gates[i].ShownDigest()
	}
	page := GatePage{Gates: gates}
	if next != nil {
		page.Next = wire.Cursor(strconv.FormatInt(next.Risk, 10), strconv.FormatInt(next.Opened, 10))
	}
	return page, nil
}

// parsePlace reads the cursor of a page, nil for the first one.
func parsePlace(cursor string) (*Place, error) {
	parts, err := wire.ParseCursor(cursor, 2)
	if err != nil || parts[1] == "" {
		return nil, err
	}
	risk, err := strconv.ParseInt(parts[0], 10, 64)
	if err != nil {
		return nil, wire.BadCursor()
	}
	opened, err := wire.CursorNumber(parts[1])
	return &Place{risk, opened}, err
}

// Show reads a gate with what became of its action, as far as the caller may see it.
func (g *Gates) Show(ctx context.Context, gateID string) (Gate, error) {
	found, err := g.Get(ctx, gateID)
	if err == nil && !wire.InScope(ctx, found.Workspace) {
		err = noGate(found.ID)
	}
	if err != nil {
		return Gate{}, err
	}
	if found.Receipts, err = g.Receipts(ctx, found.ID); err == nil {
		found.Unused, err = g.unused(ctx, &found)
	}
	if err == nil && found.Status == Pending {
		err = g.addPresence(ctx, &found)
	}
	return g.digested(found, err)
}
