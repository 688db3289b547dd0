package web

import (
	"cmp"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// inboxRows is how many gates one page of the list shows.
const (
	inboxRows = 40
	// inboxLook is how many gates are looked at for one page, when a filter that the database does
	// not know lets only some through.
	inboxLook = 2000
)

// inbox is the list of gates, and the one that is open beside it. On a narrow screen only one of
// the two is shown, which Asked decides.
type inbox struct {
	Filter inboxFilter
	Gates  []gate.Gate
	Next   string // the address of the next page
	Total  int64  // how many wait, whatever the filter says
	Decks  []string
	Agents []string
	Slide  *slide
	Asked  bool // the address names the gate that is open
}

// PageTitle is the title of the gate that was asked for.
func (i *inbox) PageTitle() string {
	if i.Asked && i.Slide != nil {
		return cut(60, i.Slide.Gate.Title)
	}
	return "Inbox"
}

// inboxFilter is what a person wants to see. Status, deck and agent are asked of the database; the
// rest is filtered here.
type inboxFilter struct {
	Status, Deck, Agent, User, Protocol, Age, Search string

	at string // the page, as a cursor
}

// ages are what one can ask for: gates that have waited at least so long.
var ages = []struct {
	Name, Label string
	Least       time.Duration
}{{"10m", "over 10 min", 10 * time.Minute}, {"1h", "over 1 h", time.Hour}, {"24h", "over 24 h", 24 * time.Hour}}

// readInboxFilter reads the filter from the address.
func readInboxFilter(r *Request) inboxFilter {
	return inboxFilter{
		Status: cmp.Or(r.Query("status"), string(gate.Pending)), Deck: r.Query("deck"), Agent: r.Query("agent"),
		User: r.Query("user"), Protocol: r.Query("protocol"), Age: r.Query("age"),
		Search: strings.TrimSpace(r.Query("q")), at: r.Query("cursor"),
	}
}

// Query is the filter as the query of an address, "" if it lets everything through.
func (f inboxFilter) Query() string { return f.query(f.at) }

// query is the filter with another place in the list.
func (f inboxFilter) query(cursor string) string {
	q := url.Values{}
	for name, value := range map[string]string{
		"deck": f.Deck, "agent": f.Agent, "user": f.User, "protocol": f.Protocol, "age": f.Age,
		"q": f.Search, "cursor": cursor,
	} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if f.Status != string(gate.Pending) {
		q.Set("status", f.Status)
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// Narrow reports whether the filter may hide gates that wait.
func (f inboxFilter) Narrow() bool {
	return f.Deck+f.Agent+f.User+f.Protocol+f.Age+f.Search != ""
}

// Ages are what can be chosen.
func (inboxFilter) Ages() any { return ages }

// Statuses are those that gates have, and all of them.
func (inboxFilter) Statuses() []string { return []string{"pending", "approved", "rejected", "all"} }

// matches reports whether a gate passes what the database is not asked for. Every word of the
// search must occur somewhere.
func (f inboxFilter) matches(g *gate.Gate, now time.Time) bool {
	if f.Protocol != "" && g.Origin.Protocol != f.Protocol {
		return false
	}
	for _, a := range ages {
		if a.Name == f.Age && now.Sub(g.OpenedAt) < a.Least {
			return false
		}
	}
	if f.Search == "" {
		return true
	}
	all := strings.ToLower(strings.Join([]string{g.ID, g.Title, g.Summary, g.ProposedAction, g.Agent, g.Project, g.Rule},
		"\n"))
	return !slices.ContainsFunc(strings.Fields(strings.ToLower(f.Search)), func(word string) bool {
		return !strings.Contains(all, word)
	})
}

// loadInbox reads the list and the open gate; without one in the address it opens the first.
func (w *Web) loadInbox(r *Request) (any, error) {
	f := readInboxFilter(r)
	page := &inbox{Filter: f, Asked: r.PathValue("id") != ""}
	if err := w.fillInbox(r, page); err != nil {
		return nil, err
	}
	open := r.PathValue("id")
	// On a wide screen the first gate is shown beside the list.
	if open == "" && len(page.Gates) > 0 {
		open = page.Gates[0].ID
	}
	if open == "" {
		return page, nil
	}
	var err error
	page.Slide, err = w.loadSlide(r, open)
	return page, err
}

// fillInbox reads the list, and what can be chosen in the filter.
func (w *Web) fillInbox(r *Request, page *inbox) error {
	// The numbers are those of all gates that wait, whatever the filter.
	waiting, _, err := w.queues.waiting(r.Context(), w, r.Who.Workspace)
	if err != nil {
		return err
	}
	agents := []string{}
	for _, some := range waiting {
		page.Total += some.Gates
		// The choices of the filter are what waits now, not every project there ever was.
		page.Decks, agents = append(page.Decks, some.Project), append(agents, some.Agent)
	}
	names, err := w.Roster.AgentNames(r.Context(), agents)
	if err != nil {
		return err
	}
	for _, name := range names {
		page.Agents = append(page.Agents, name)
	}
	page.Decks, page.Agents = choices(page.Decks, page.Filter.Deck), choices(page.Agents, page.Filter.Agent)
	page.Gates, page.Next, err = w.listGates(r, page.Filter)
	return err
}

// choices are the values of a filter, each once, with the chosen one even if nothing has it.
func choices(all []string, chosen string) []string {
	all = append(all, chosen)
	slices.Sort(all)
	return slices.DeleteFunc(slices.Compact(all), func(s string) bool { return s == "" })
}

// listGates reads one page of the gates that pass the filter, and the address of the next. It
// stops after inboxLook gates, so that a rare word does not make it read a million.
func (w *Web) listGates(r *Request, f inboxFilter) (found []gate.Gate, next string, err error) {
	// The workspace is the operator's, and never the address's.
	selected := gate.Filter{Workspace: r.Who.Workspace, Project: f.Deck, Status: gate.Status(f.Status)}
	if f.Status == "all" {
		selected.Status = ""
	}
	// Names are unique in a workspace only, so a name may stand for several agents.
	if f.Agent != "" {
		if selected.Agents, err = w.Roster.AgentIDs(r.Context(), r.Who.Workspace, f.Agent); err != nil ||
			len(selected.Agents) == 0 {
			return nil, "", err
		}
	}
	if f.User != "" {
		selected.For, err = w.Behalf.Keys(r.Context(), r.Who.Workspace, f.User, false)
		if fault.Is(err, fault.NotFound) { // there is no such user
			return nil, "", nil
		}
		if err != nil {
			return nil, "", err
		}
	}
	after, err := readPlace(f.at)
	if err != nil {
		return nil, "", err
	}
	for looked := 0; looked < inboxLook; {
		some, place, err := w.Gates.List(r.Context(), selected, after, inboxRows)
		if err != nil {
			return nil, "", err
		}
		for i := range some {
			if f.matches(&some[i], w.Now()) {
				found = append(found, some[i])
			}
		}
		// A page may be a little longer than inboxRows: it ends with what was read.
		if after = place; place == nil || len(found) >= inboxRows {
			break
		}
		looked += len(some)
	}
	if after != nil {
		next = address.Inbox.At() + f.query(strconv.FormatInt(after.Risk, 10)+"-"+strconv.FormatInt(after.Opened, 10))
	}
	return found, next, nil
}

// readPlace reads where a page of the list begins, nil for the first. A place is a risk and a
// moment, by which the list is ordered.
func readPlace(text string) (*gate.Place, error) {
	if text == "" {
		return nil, nil //nolint:nilnil // the first page has no place
	}
	risk, opened, _ := strings.Cut(text, "-")
	var p gate.Place
	var err, err2 error
	p.Risk, err = strconv.ParseInt(risk, 10, 64)
	p.Opened, err2 = strconv.ParseInt(opened, 10, 64)
	if err != nil || err2 != nil {
		return nil, wire.BadCursor()
	}
	return &p, nil
}

// visible reads a gate that the caller may see. One of another workspace does not exist for them.
func (w *Web) visible(r *Request, gateID string) (gate.Gate, error) {
	g, err := w.Gates.Get(r.Context(), gateID)
	// Get reads any gate; the wall between workspaces is here.
	if err == nil && !wire.InScope(r.Context(), g.Workspace) {
		err = fault.New(fault.NotFound, "There is no gate %.80q.", gateID)
	}
	return g, err
}

// operators are the people to whom the caller can delegate votes.
func (w *Web) operators(r *Request) ([]roster.Person, error) {
	all, err := w.Roster.Operators(r.Context(), r.Who.Workspace)
	return slices.DeleteFunc(all, func(p roster.Person) bool { return p.ID == r.Who.ID }), err
}
