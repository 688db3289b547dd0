package web

import (
	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// older is the address of the next page, "" when there is none.
func older(r *Request, cursor string) string {
	if cursor == "" {
		return ""
	}
	q := r.URL.Query()
	q.Set("cursor", cursor)
	return r.URL.Path + "?" + q.Encode()
}

// place is the workspace that a page shows, for pages that show one at a time.
type place struct {
	Workspace  string
	Workspaces []string
}

func (w *Web) place(r *Request) (place, error) {
	all, err := w.Roster.Workspaces(r.Context(), r.Who.Workspace)
	if err != nil {
		return place{}, err
	}
	p := place{Workspace: r.Query("workspace"), Workspaces: all}
	if p.Workspace == "" {
		p.Workspace = r.Who.Workspace
	}
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
