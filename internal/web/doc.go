// Package web is Relay, the operators' dashboard: pages that the server makes with
// html/template, live by server-sent events, with one small script and no framework. It
// owns who is signed in (sessions, login codes, passwords, OpenID Connect) and how things
// look; it decides nothing. What an operator does goes through the services that the API
// uses too, so it is in the ledger, and rules and walls are the same.
//
// Pages can be read, and gates decided, without the script. No page contains a script or a
// style of its own, and the security policy of every answer forbids them: what agents
// write is shown, and never run or fetched.
//
// # How to add a page
//
// Give the page a file of its own (mail.go) and a template (templates/mail.html), and
// name it in Pages in page.go:
//
//	func mailPages() []Page {
//		return []Page{{Path: string(address.Mail), Template: "mail", Title: "Mail", Live: []string{"message"}, Load: (*Web).loadMail}}
//	}
//
//	func (w *Web) loadMail(r *Request) (any, error) { … }
//
// The menu in page.go shows an entry when its page is there. Load reads through the
// services in Options and returns what the template sees as .Data. r.Who is who asks; a
// page shows only what r.Who.Workspace (every workspace when "") may see, and a service
// that asks the context for the scope (wire.InScope) finds it in r.Context(). An error
// becomes a page with its message. Role is the least that may look.
//
// The template defines "main". The page begins with <div class="page"> and, in it,
// <div class="head"><h1>…</h1></div>. What it can use:
//
//	{{when .At}}                      3 min ago, exact on hover (time.Time or *time.Time)
//	{{ref .ID}}                       a long id, short, with a button that copies it
//	{{short .ID}} {{cut 80 .Text}}    the same without the button; one line of a text
//	{{num .N}} {{money .USD}} {{plural .N "gate"}} {{lasts .Duration}} {{pretty .JSON}}
//	{{icon "mail"}}                   see icons.go; add what is missing
//	{{template "empty" (pairs "icon" "mail" "title" "No mail yet" "text" "What would fill it." "code" "a command")}}
//	{{template "status" "failed"}} {{template "risk" "high"}} {{template "protocol" "mail"}}
//	{{template "pager" .Data.Next}}   Next is an address, "" on the last page; keyset cursors, no offsets
//	{{if .May "operator"}}…{{end}}    what is shown; the server checks again
//
// Tables stand in <div class="table"><table>…, numbers in class="num", pairs of names and
// values in <dl class="facts">, boxes are class="card", columns class="cols", what follows
// in time <ol class="timeline">. Colours only by the tokens at the head of relay.css;
// append rules for one page under a heading of its own. No style attributes: the security
// policy forbids them. SVG attributes (width, x, class) are fine; see chart.go.
//
// Live: nouns of ledger entries in Page.Live ("task" for task.dispatched). When such an
// entry is committed, the script fetches the page again and replaces each element that has
// both an id and data-live and that has changed; data-live="rows" merges children with
// data-key instead, so that rows do not jump. Give what changes a fixed place.
//
// A form posts to an Action, listed in Actions. Do calls a service and returns a Result:
// where to go next (the page the form stands on when empty), and what to say there. An
// error is said there as well. Role is checked before Do; an operator when empty. For
// what is shown once, such as a key, set Result.Template. Forms need no token: requests
// from other sites are refused by http.CrossOriginProtection. A select with data-submit
// sends its form when it changes, and has a button for who has no script.
package web
