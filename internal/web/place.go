package web

import (
	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// nextPage is the address of the next page of a list, "" if this is the last. It keeps the filter.
func nextPage(r *Request, cursor string) string {
	if cursor == "" {
		return ""
	}
	q := r.URL.Query()
	q.Set("cursor", cursor)
	return r.URL.Path + "?" + q.Encode()
}

// unlessNobody is the error of a list of what was done on behalf of a user, nil if there is no such user: the list is
// empty then.
func unlessNobody(user string, err error) error {
	if user != "" && fault.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// place is the workspace that a page shows, for pages that show one at a time, and those that can
// be chosen instead.
type place struct {
	Workspace  string
	Workspaces []string
}

// place finds the workspace to show: the one that the address names, else the operator's own, else
// default. A workspace that the operator may not see does not exist.
func (w *Web) place(r *Request) (place, error) {
	all, err := w.Roster.Workspaces(r.Context(), r.Who.Workspace)
	if err != nil {
		return place{}, err
	}
	p := place{Workspace: r.Query("workspace"), Workspaces: all}
	if p.Workspace == "" {
		p.Workspace = r.Who.Workspace
	}
	// An operator who sees all workspaces starts with default, if it exists.
	if p.Workspace == "" && len(all) > 0 {
		p.Workspace = all[0]
		for _, name := range all {
			if name == "default" {
				p.Workspace = name
			}
		}
	}
	if !wire.InScope(r.Context(), p.Workspace) {
		return p, fault.New(fault.NotFound, "There is no workspace %.80q.", p.Workspace)
	}
	return p, nil
}
