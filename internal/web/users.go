package web

import (
	"slices"
	"strings"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The prefixes of a search for what is on behalf of a user, for what only claims it, and for what was decided under a
// handoff.
const (
	userPrefix    = "user:"
	claimedPrefix = "claimed:"
	handoffPrefix = "handoff:"
)

// userSearch is the prefix of a search by user, "" for another search. Traces begin with other words.
func userSearch(text string) string {
	for _, prefix := range []string{userPrefix, claimedPrefix, handoffPrefix} {
		if name, ok := strings.CutPrefix(text, prefix); ok && name != "" {
			return prefix
		}
	}
	return ""
}

// entriesOfUser finds the entries of a user. A user who does not exist has none.
func (w *Web) entriesOfUser(r *Request, v *ledgerView, q ledger.Query, prefix string) ([]ledger.Entry, error) {
	name, claimed := strings.TrimPrefix(v.Search, prefix), prefix == claimedPrefix
	v.Reading = "what was done on behalf of " + name
	if claimed {
		v.Reading = "what claims, without proof, to be on behalf of " + name
	}
	asked := behalf.Query{Query: q, User: name, Claimed: claimed}
	if prefix == handoffPrefix {
		v.Reading = "what was decided under the handoff " + name
		asked.User, asked.Handoff = "", name
	}
	found, err := w.Behalf.Entries(r.Context(), asked)
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	return found, err
}

// userPage is a user with their agents, what was done for them lately, what was refused, and what only claims to be
// for them.
type userPage struct {
	roster.User
	Everything             bool // their scopes leave nothing out
	Owned                  []roster.Agent
	Done, Refused, Claimed []ledger.Entry
}

// PageTitle is the title of the page.
func (u *userPage) PageTitle() string { return u.Name }

// userRows is how many entries of each list the page of a user shows.
const userRows = 20

// refusedKinds are the entries of what was not done.
var refusedKinds = []string{"step.blocked", "message.blocked", "task.refused", "call.refused"}

// loadUser reads a user with what was done for them.
func (w *Web) loadUser(r *Request) (any, error) {
	workspace := r.PathValue("workspace")
	if !wire.InScope(r.Context(), workspace) {
		return nil, fault.New(fault.NotFound, "There is no user %.80q.", r.PathValue("user"))
	}
	found, err := w.Roster.User(r.Context(), workspace, r.PathValue("user"))
	if err != nil {
		return nil, err
	}
	page := &userPage{User: found, Everything: slices.Contains(found.Scopes, "*")}
	if _, err := w.eachAgent(r.Context(), workspace, func(a *roster.Agent) {
		if a.Owner == found.Name || slices.Contains(a.ActsFor, found.Name) {
			page.Owned = append(page.Owned, *a)
		}
	}); err != nil {
		return nil, err
	}
	for _, list := range []struct {
		into    *[]ledger.Entry
		kinds   []string
		claimed bool
	}{{&page.Done, nil, false}, {&page.Refused, refusedKinds, false}, {&page.Claimed, nil, true}} {
		q := ledger.Query{Workspace: workspace, Kinds: list.kinds, Newest: true, Limit: userRows}
		entries, err := w.Behalf.Entries(r.Context(), behalf.Query{Query: q, User: found.ID, Claimed: list.claimed})
		if err != nil {
			return nil, err
		}
		slices.Reverse(entries)
		*list.into = entries
	}
	return page, nil
}
