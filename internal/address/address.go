// Package address declares the paths of the dashboard's pages, so that the code that links to
// a page (notifications, commands, errors, other pages) and the code that serves it agree.
//
// It owns the paths and how a name is put into one. It must not know what the pages show.
package address

import (
	"net/url"
	"strings"
)

// Page is the path of a page, as http.ServeMux takes it, with {names} in braces for the parts
// that vary. Paths are in messages that were sent, so a page that moves needs a redirect.
type Page string

// The pages.
const (
	Dashboard  Page = "/ui/"
	Login      Page = "/ui/login"
	Account    Page = "/ui/account"
	Terminal   Page = "/ui/terminal"
	Inbox      Page = "/ui/inbox"
	Gate       Page = "/ui/inbox/{id}"
	Overview   Page = "/ui/overview"
	Agents     Page = "/ui/agents"
	NewAgent   Page = "/ui/agents/new"
	Agent      Page = "/ui/agents/{workspace}/{agent}"
	User       Page = "/ui/users/{workspace}/{user}"
	Mail       Page = "/ui/mail"
	Message    Page = "/ui/mail/{id}"
	Tasks      Page = "/ui/tasks"
	Task       Page = "/ui/tasks/{workspace}/{id}"
	Sessions   Page = "/ui/sessions"
	Session    Page = "/ui/sessions/{workspace}/{id...}"
	Handoffs   Page = "/ui/handoffs"
	Handoff    Page = "/ui/handoffs/{id}"
	Runs       Page = "/ui/runs"
	Run        Page = "/ui/runs/{id}"
	Ledger     Page = "/ui/ledger"
	Entry      Page = "/ui/ledger/{seq}"
	Deliveries Page = "/ui/deliveries"
	Delivery   Page = "/ui/deliveries/{id}"
	Alarms     Page = "/ui/alarms"
	Policy     Page = "/ui/policy"
	Version    Page = "/ui/policy/{number}"
	Prices     Page = "/ui/prices"
	Settings   Page = "/ui/settings"
)

// Named are the pages by their names, for templates.
var Named = map[string]Page{
	"Dashboard":  Dashboard,
	"Login":      Login,
	"Account":    Account,
	"Terminal":   Terminal,
	"Inbox":      Inbox,
	"Gate":       Gate,
	"Overview":   Overview,
	"Agents":     Agents,
	"NewAgent":   NewAgent,
	"Agent":      Agent,
	"User":       User,
	"Mail":       Mail,
	"Message":    Message,
	"Tasks":      Tasks,
	"Task":       Task,
	"Sessions":   Sessions,
	"Session":    Session,
	"Handoffs":   Handoffs,
	"Handoff":    Handoff,
	"Runs":       Runs,
	"Run":        Run,
	"Ledger":     Ledger,
	"Entry":      Entry,
	"Deliveries": Deliveries,
	"Delivery":   Delivery,
	"Alarms":     Alarms,
	"Policy":     Policy,
	"Version":    Version,
	"Prices":     Prices,
	"Settings":   Settings,
}

// At is the path of one page, with the values in place of the names, in their order. A page
// with another number of names is a mistake of the program.
func (p Page) At(values ...string) string {
	rest, at := string(p), ""
	for _, value := range values {
		before, name, found := strings.Cut(rest, "{")
		_, after, closed := strings.Cut(name, "}")
		if !found || !closed {
			panic("address: " + string(p) + " has fewer names than values")
		}
		at, rest = at+before+url.PathEscape(value), after
	}
	if strings.Contains(rest, "{") {
		panic("address: " + string(p) + " has more names than values")
	}
	return at + rest
}

// Of is the path of an action on the page, below it.
func (p Page) Of(action string) string { return strings.TrimSuffix(string(p), "/") + "/" + action }
