// Package web is Relay, the operators' dashboard: pages that the server renders with
// html/template, live by server-sent events, with one small script and no framework. It
// owns who is signed in (sessions, login codes, passwords, OpenID Connect) and how things
// look; it decides nothing. What an operator does goes through the services that the API
// uses too, so it is in the ledger, and the same rules and walls hold.
//
// # What always holds
//
//   - Pages can be read, and gates decided, without the script.
//   - No page contains a script or a style of its own, and the security policy of every
//     answer forbids them: what agents write is shown, and never run or fetched.
//   - Nothing that an agent wrote is left out of what a person approves. Where a text is too
//     long, the page says so and says where all of it is.
//   - A GET changes nothing. A POST from another site is refused.
//   - A secret is shown once, in the answer to the form that made it. Tables and ledger hold
//     hashes only.
//   - The scope of a request is set once, in admit, from who is signed in. A page never reads
//     a workspace from the address without checking it against that scope.
//   - A page is rendered in full before its first byte is sent.
//
// # Who is signed in
//
// A session is a random token in a cookie and its hash in a table (session.go). It is opened
// with a code from `signalbox login` (code.go), with a password (password.go) or through an
// OpenID Connect provider (oidc.go), lasts seven days, and ends with a new password, with the
// operator, or with a click. The operator is read anew for each request, so a role that is
// taken away is gone at once. The same cookie works for /ops/* (Caller).
//
// # How pages are live
//
// hub (live.go) follows the ledger once and tells each open page which nouns have changed. The
// script then fetches the page again, with the rights of that moment, and replaces the parts
// that differ. So there is no second way to render anything, and no state to keep in step.
//
// # How to add a page
//
// Give the page a file of its own (mail.go) and a template (templates/mail.html), and
// name it in Pages in pages.go:
//
//	{Path: string(address.Mail), Template: "mail", Title: "Mail", Live: mail, Load: (*Web).loadMail},
//
//	func (w *Web) loadMail(r *Request) (any, error) { … }
//
// The menu in page.go shows an entry if its page exists. Load reads through the services in
// Options and returns what the template sees as .Data. r.Who is the caller; a page shows only
// what r.Who.Workspace (every workspace when "") may see, and a service that asks the context
// for the scope (wire.InScope) finds it in r.Context(). An error becomes a page with its
// message. Role is the least role that may look.
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
// Tables are in <div class="table"><table>…, numbers in class="num", pairs of names and
// values in <dl class="facts">, boxes are class="card", columns class="cols", what follows
// in time <ol class="timeline">. Colours only by the tokens at the head of relay.css;
// append rules for one page under a heading of its own. No style attributes: the security
// policy forbids them. SVG attributes (width, x, class) are fine; see chart.go.
//
// Live: nouns of ledger entries in Page.Live ("task" for task.dispatched). After such an
// entry the script fetches the page again and replaces each element that has both an id and
// data-live and that has changed; data-live="rows" merges children with data-key instead, so
// that rows do not jump. Give what changes a fixed place.
//
// A form posts to an Action, listed in Actions. Do calls a service and returns a Result:
// where to go next (the page that the form is on when empty), and what to say there. An
// error is shown there as well. Role is checked before Do; operator when empty. For
// what is shown once, such as a key, set Result.Template. Forms need no token: requests
// from other sites are refused by http.CrossOriginProtection. A select with data-submit
// sends its form when it changes, and has a button for people without the script.
//
// Tests go through Pages and Actions: a new one is loaded as every role, audited for
// accessibility, and filled with hostile texts without anybody having to remember it.
package web
