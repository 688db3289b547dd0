package roster

import (
	"context"
	"net/http"
	"slices"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Workspaces are walls: for an agent of one, agents of another do not exist. An admin can open a workspace to
// another, in one direction: agents of the other may then write to its agents, look them up and see whether they
// are online.

// The kinds of the entries that open and close a workspace, whose name is the subject. No table follows from them: who
// may come in is read from the entries, and kept in memory like a key.
const (
	kindOpened = "workspace.opened"
	kindClosed = "workspace.closed"
)

// opening is their body: the workspace whose agents may come in, or no longer.
type opening struct {
	To string `json:"to"`
}

// WorkspaceChange changes a workspace. OpenTo are all workspaces that it is open to from then on.
type WorkspaceChange struct {
	OpenTo *[]string `json:"open_to,omitempty" doc:"the workspaces whose agents may write to the agents of this one"`
}

// Workspace is a workspace with the settings that it has.
type Workspace struct {
	Name   string   `json:"name"`
	OpenTo []string `json:"open_to"`
}

// openings are the workspaces that others are open to, in the order of their names, as entries of both kinds say.
func openings(entries []ledger.Entry) (map[string][]string, error) {
	open := map[string][]string{}
	for i := range entries {
		e := &entries[i]
		b, err := ledger.Read[opening](e)
		if err != nil {
			return nil, err
		}
		at, found := slices.BinarySearch(open[e.Subject], b.To)
		switch {
		case e.Kind == kindOpened && !found:
			open[e.Subject] = slices.Insert(open[e.Subject], at, b.To)
		case e.Kind == kindClosed && found:
			open[e.Subject] = slices.Delete(open[e.Subject], at, at+1)
		}
	}
	return open, nil
}

// openTo reads to which workspaces one is open.
func openTo(p ledger.Prover, workspace string) ([]string, error) {
	entries, err := p.Entries(ledger.Query{Subject: workspace, Kinds: []string{kindOpened, kindClosed}})
	if err != nil {
		return nil, err
	}
	open, err := openings(entries)
	return open[workspace], err
}

// Reaches reports whether agents of one workspace may know of agents of another: of their own, and of one that is open
// to them. It takes as long for a workspace that does not exist.
func (r *Roster) Reaches(ctx context.Context, from, to string) (bool, error) {
	if from == to {
		return true, nil
	}
	h, err := r.cache.Get("open:"+to, func() (h holding, err error) {
		h.open, err = openTo(r.ledger.Prover(ctx), to)
		return h, err
	})
	return slices.Contains(h.open, from), err
}

// ChangeWorkspace changes the settings of a workspace. Who is confined to a workspace changes that one alone. What was
// accepted before a workspace was closed is still delivered.
func (r *Roster) ChangeWorkspace(ctx context.Context, by Identity, name string, c WorkspaceChange) (Workspace, error) {
	name, err := WorkspaceOf(ctx, name)
	if err != nil {
		return Workspace{}, err
	}
	out := Workspace{Name: name}
	err = r.Write(ctx, func(tx *ledger.Tx) error {
		if err := RequireWorkspace(tx, name); err != nil {
			return err
		}
		before, err := openTo(tx.Prover(), name)
		out.OpenTo = slices.Concat([]string{}, before)
		if err != nil || c.OpenTo == nil {
			return err
		}
		for _, other := range *c.OpenTo {
			if err := checkOpening(tx, by, name, other); err != nil {
				return err
			}
		}
		after := slices.Compact(slices.Sorted(slices.Values(*c.OpenTo)))
		change := func(kind string, from, to []string) {
			for _, other := range from {
				if !slices.Contains(to, other) {
					tx.Append(ledger.Event{
						Workspace: name, Kind: kind, Actor: by.Actor(), Subject: name, Body: opening{other},
					})
				}
			}
		}
		change(kindClosed, before, after)
		change(kindOpened, after, before)
		out.OpenTo = slices.Concat([]string{}, after)
		return nil
	})
	return out, err
}

// checkOpening checks the name of a workspace that another is to be opened to. Whoever is confined to a workspace is not
// told whether there is another.
func checkOpening(tx *ledger.Tx, by Identity, name, other string) error {
	if err := checkName(other); err != nil {
		return fault.From(err).About("open_to")
	}
	if other == name {
		return fault.New(fault.InvalidPayload, "A workspace is open to its own agents. open_to should name others, such as "+
			"[\"finance\"], or none: [].").About("open_to")
	}
	if by.Workspace != "" {
		return nil
	}
	return RequireWorkspace(tx, other)
}

// listWorkspaces lists the workspaces that the caller may see, and to which others they are open.
func (r *Roster) listWorkspaces(ctx context.Context) (WorkspaceList, error) {
	scope := wire.Scope(ctx)
	names, err := r.Workspaces(ctx, scope)
	if err != nil {
		return WorkspaceList{}, err
	}
	entries, err := r.ledger.Prover(ctx).Entries(ledger.Query{Workspace: scope, Kinds: []string{kindOpened, kindClosed}})
	if err != nil {
		return WorkspaceList{}, err
	}
	open, err := openings(entries)
	return WorkspaceList{Workspaces: names, OpenTo: open}, err
}

func (r *Roster) patchWorkspace(req *http.Request, c WorkspaceChange) (Workspace, error) {
	return r.ChangeWorkspace(req.Context(), From(req.Context()), req.PathValue("name"), c)
}
