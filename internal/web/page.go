package web

import (
	"bytes"
	"cmp"
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Page is one address that people look at. Pages lists all of them.
type Page struct {
	Path     string // as net/http's ServeMux takes it, without the method
	Template string // a file of templates, without .html
	Title    string
	// Live are the nouns of the entries after which the page is out of date: "gate" stands for
	// gate.opened and every other entry about gates.
	Live []string
	// Role is the least that may look, a viewer when empty.
	Role roster.Role
	// Load reads what the template shows as .Data. It must not change anything: a page is loaded
	// again after every change.
	Load func(w *Web, r *Request) (any, error)
}

// Result is what follows from an action: another page, with a message there. If Template is set,
// that page is shown at once and not redirected to, for what is shown only this once.
type Result struct {
	To    string
	Flash string

	Template string
	Title    string
	Data     any

	// JSON is the answer for a script that asked; nil for none.
	JSON any
}

// menu is the navigation, in its order. Entries whose page does not exist are left out.
var menu = []struct{ Path, Icon, Label, Group string }{
	{address.Inbox.At(), "inbox", "Inbox", ""},
	{address.Overview.At(), "chart", "Overview", ""},
	{address.Agents.At(), "agent", "Agents", ""},
	{address.Decks.At(), "deck", "Decks", ""},
	{address.Mail.At(), "mail", "Mail", "Work"},
	{address.Tasks.At(), "task", "Tasks", "Work"},
	{address.Sessions.At(), "session", "Sessions", "Work"},
	{address.Runs.At(), "run", "Runs", "Work"},
	{address.Handoffs.At(), "people", "Handoffs", "Work"},
	{address.Ledger.At(), "ledger", "Ledger", "Record"},
	{address.Deliveries.At(), "send", "Deliveries", "Record"},
	{address.Alarms.At(), "alert", "Alarms", "Record"},
	{address.Policy.At(), "policy", "Policy", "Control"},
	{address.Settings.At(), "settings", "Settings", "Control"},
}

// Request is a request by somebody who is signed in. Its context has the caller and the scope, so
// services find them there.
type Request struct {
	*http.Request
	Who     roster.Identity
	w       http.ResponseWriter
	choices map[string]roster.Role // of the action
}

// May reports whether the caller has at least the role.
func (r *Request) May(role roster.Role) bool { return r.Who.Role.Allows(role) }

// checkRole refuses a caller who has less than the role.
func checkRole(who roster.Identity, role roster.Role) error {
	if who.Role.Allows(role) {
		return nil
	}
	return fault.New(fault.Forbidden, "This takes the role %s, and %s has the role %s. Ask an admin.", role, who.Name,
		who.Role)
}

// Choice is which of the action's choices the form names, if the caller may choose it.
func (r *Request) Choice() (string, error) {
	choice := r.Field("do")
	role, known := r.choices[choice]
	if !known {
		return "", fault.New(fault.InvalidRequest, "The form should say one of %s.",
			strings.Join(slices.Sorted(maps.Keys(r.choices)), ", ")).About("do")
	}
	return choice, checkRole(r.Who, role)
}

// Query is a parameter of the address.
func (r *Request) Query(name string) string { return r.URL.Query().Get(name) }

// Field is a field of the submitted form, without space around it.
func (r *Request) Field(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }

// view is what a template sees. Data is the page's own; the rest is the frame's.
type view struct {
	Title   string
	Path    string // with its query, to come back to
	Who     roster.Identity
	Theme   string
	Flash   *flash
	Menu    []menuEntry
	Waiting int64
	Alarms  []alarm.Alarm // those that are open, a page of them
	Alarmed int64         // how many are open
	Seq     int64         // the last entry when the page was made
	Topics  string
	CSS, JS string
	Data    any
}

// menuEntry is one line of the navigation.
type menuEntry struct {
	Path, Icon, Label string
	Group             string // the heading above it, where one begins
	Here              bool
	Count             int64
}

// May reports whether the viewer has at least the role. Templates hide what a person may not do;
// the server checks again.
func (v view) May(role string) bool { return v.Who.Role.Allows(roster.Role(role)) }

// securityPolicy lets nothing run or load but our own files. Even if an agent's text got into a
// page unescaped, it could not run or call anybody.
const securityPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src " +
	"'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// answerTime is how long a client may take to read an answer. Event streams set their own.
const answerTime = time.Minute

// Handler serves everything below /ui/. Security headers and the check against other sites come
// before everything else.
func (w *Web) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ui/static/", w.serveAsset)
	mux.HandleFunc("GET /ui/events", w.serveEvents)
	for _, at := range []string{"GET /ui/{$}", "GET /{$}"} {
		mux.Handle(at, http.RedirectHandler(address.Inbox.At(), http.StatusSeeOther))
	}
	w.mountLogin(mux)
	for _, p := range Pages() {
		mux.HandleFunc("GET "+p.Path, func(out http.ResponseWriter, r *http.Request) { w.servePage(out, r, &p) })
	}
	for _, a := range Actions() {
		mux.HandleFunc("POST "+a.Path, func(out http.ResponseWriter, r *http.Request) { w.serveAction(out, r, &a) })
	}
	mux.HandleFunc(address.Dashboard.At(), func(out http.ResponseWriter, r *http.Request) {
		w.fail(out, r, fault.New(fault.NotFound, "There is no page at this address."))
	})
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		h := out.Header()
		h.Set("Content-Security-Policy", securityPolicy)
		h.Set("Referrer-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		// Pages show what agents wrote, some of it secret; nothing of it stays in a cache.
		h.Set("Cache-Control", "no-store")
		_ = http.NewResponseController(out).SetWriteDeadline(time.Now().Add(answerTime))
		if w.Check != nil {
			if err := w.Check(r); err != nil {
				w.fail(out, r, err)
				return
			}
		}
		if err := w.sameSite.Check(r); err != nil {
			w.fail(out, r, fault.New(fault.Forbidden,
				"This was sent from another site, and nothing was done. Open the page here and try again."))
			return
		}
		mux.ServeHTTP(out, r)
	})
}

// admit finds out who is calling and checks the role. It redirects people who are not signed in to
// the login page and returns nil, as it does for every refusal. The context it sets is the wall
// between workspaces: services read the scope from there.
func (w *Web) admit(out http.ResponseWriter, r *http.Request, role roster.Role) *Request {
	who, err := w.Identify(r)
	if fault.Is(err, fault.Unauthenticated) {
		// After a POST there is nothing to return to: its form is lost with the session.
		to := address.Login.At()
		if r.Method == http.MethodGet {
			to += "?to=" + url.QueryEscape(r.URL.RequestURI())
		}
		http.Redirect(out, r, to, http.StatusSeeOther)
		return nil
	}
	if err == nil {
		err = checkRole(who, role)
	}
	if err == nil {
		// Broken escapes and NUL in the address are refused here, so that pages need not look.
		err = wire.KnownQuery(r, &wire.Route{Lenient: true})
	}
	r = r.WithContext(wire.WithScope(roster.With(r.Context(), who), who.Workspace))
	request := &Request{Request: r, Who: who, w: out}
	if err != nil {
		w.failAs(request, err)
		return nil
	}
	return request
}

// servePage loads and renders a page. The template is rendered in full before the first byte is
// sent, so an error is never half a page.
func (w *Web) servePage(out http.ResponseWriter, r *http.Request, p *Page) {
	request := w.admit(out, r, cmp.Or(p.Role, roster.Viewer))
	if request == nil {
		return
	}
	data, err := p.Load(w, request)
	if err != nil {
		w.failAs(request, err)
		return
	}
	v := w.view(request)
	v.Title, v.Topics, v.Data = p.Title, strings.Join(p.Live, " "), data
	if titled, ok := data.(interface{ PageTitle() string }); ok {
		v.Title = titled.PageTitle()
	}
	w.render(out, http.StatusOK, p.Template, v)
}

// maxForm is the largest form, in bytes. The largest is a policy, of up to 1 MiB before encoding.
const maxForm = 2 << 20

// serveAction runs an action and redirects (POST, redirect, GET), so that reloading a page repeats
// nothing.
func (w *Web) serveAction(out http.ResponseWriter, r *http.Request, a *Action) {
	request := w.admit(out, r, cmp.Or(a.Role, roster.Operator))
	if request == nil {
		return
	}
	request.choices = a.Choices
	// The role was checked first, so only operators can make the server read a large form.
	r.Body = http.MaxBytesReader(out, r.Body, maxForm)
	request.Body = r.Body
	if err := request.ParseForm(); err != nil {
		w.failAs(request,
			fault.New(fault.TooLarge, "The form is too large, or not well formed. The most is %d bytes.", maxForm))
		return
	}
	result := Result{}
	err := clean(request.PostForm)
	if err == nil {
		result, err = a.Do(w, request)
	}
	if err != nil {
		w.actionFailed(request, result, err)
		return
	}
	if result.Flash != "" {
		w.setFlash(out, r, flash{Text: result.Flash})
	}
	if result.JSON != nil {
		if err := wire.Reply(out, http.StatusOK, result.JSON); err != nil {
			w.failAs(request, err)
		}
		return
	}
	// Secrets are in the answer itself: a redirect would need to keep them somewhere.
	if result.Template != "" {
		v := w.view(request)
		v.Title, v.Data = result.Title, result.Data
		w.render(out, http.StatusOK, result.Template, v)
		return
	}
	http.Redirect(out, request.Request, cmp.Or(result.To, back(request)), http.StatusSeeOther)
}

// clean refuses text that PostgreSQL could not store.
func clean(form url.Values) error {
	for name, values := range form {
		for _, v := range values {
			if !wire.Storable(v) {
				return fault.New(fault.InvalidPayload, "The field %.80q contains a NUL or broken UTF-8.", name).About(name)
			}
		}
	}
	return nil
}

// actionFailed says why nothing was done, on the page that the form is on.
func (w *Web) actionFailed(r *Request, result Result, err error) {
	e := w.explain("an action of the dashboard failed", r.URL.Path, err)
	w.setFlash(r.w, r.Request, flash{Text: e.Message, Bad: true})
	http.Redirect(r.w, r.Request, cmp.Or(result.To, back(r)), http.StatusSeeOther)
}

// explain is what people are told of an error. The cause of the server's own errors goes to the
// log.
func (w *Web) explain(what, path string, err error) *fault.Error {
	e := fault.From(store.Explain(err))
	if e.Code.Status() >= 500 {
		w.Log.Error(what, "path", path, "code", string(e.Code), "error", e.Error())
	}
	return e
}

// back is the page that a form was sent from, the inbox if that is unknown or not ours.
func back(r *Request) string {
	// Both values come from the browser, so both are checked.
	if at := r.PostFormValue("back"); isOurs(at) {
		return at
	}
	if _, at, ok := strings.Cut(r.Referer(), r.Host); ok && isOurs(at) {
		return at
	}
	return address.Inbox.At()
}

// isOurs reports whether an address is a page of the dashboard and nothing else. Browsers read
// //host and /\host as other hosts.
func isOurs(at string) bool {
	return strings.HasPrefix(at, address.Dashboard.At()) && !strings.ContainsAny(at, "\\\r\n\t")
}

// view fills in what the frame shows.
func (w *Web) view(r *Request) view {
	v := view{
		Path: r.URL.RequestURI(), Who: r.Who, Theme: theme(r.Request), Flash: w.takeFlash(r.w, r.Request),
		CSS: w.css, JS: w.js,
	}
	v.Waiting, v.Seq = w.waiting(r.Context(), r.Who.Workspace)
	v.Alarms, v.Alarmed = w.openAlarms(r.Context())
	there := map[string]bool{}
	for _, p := range Pages() {
		there[p.Path] = true
	}
	group := ""
	for _, m := range menu {
		if !there[m.Path] {
			continue
		}
		entry := menuEntry{Path: m.Path, Icon: m.Icon, Label: m.Label, Here: strings.HasPrefix(r.URL.Path, m.Path)}
		if m.Group != group {
			group, entry.Group = m.Group, m.Group
		}
		if m.Path == address.Inbox.At() {
			entry.Count = v.Waiting
		}
		if m.Path == address.Alarms.At() {
			entry.Count = v.Alarmed
		}
		v.Menu = append(v.Menu, entry)
	}
	return v
}

// waiting is how many gates wait, for the menu. If it cannot be counted the page is shown without
// the number.
func (w *Web) waiting(ctx context.Context, workspace string) (n, seq int64) {
	all, seq, err := w.queues.waiting(ctx, w, workspace)
	if err != nil {
		w.Log.Warn("cannot count waiting gates", "error", err.Error())
	}
	for _, some := range all {
		n += some.Gates
	}
	return n, seq
}

// render writes a page once all of it could be rendered.
func (w *Web) render(out http.ResponseWriter, status int, name string, v view) {
	var page bytes.Buffer
	found := w.pages[name]
	if found == nil {
		w.Log.Error("page without a template", "template", name)
		http.Error(out, "This page has no template.", http.StatusInternalServerError)
		return
	}
	// Into memory first: half a page could show a gate without its warning.
	if err := found.ExecuteTemplate(&page, "layout", v); err != nil {
		w.Log.Error("cannot render page", "template", name, "error", err.Error())
		http.Error(out, "Something went wrong inside Signalbox. The server's log has the cause.",
			http.StatusInternalServerError)
		return
	}
	out.Header().Set("Content-Type", "text/html; charset=utf-8")
	out.WriteHeader(status)
	_, _ = out.Write(page.Bytes())
}

// fail shows an error to somebody who may not be signed in.
func (w *Web) fail(out http.ResponseWriter, r *http.Request, err error) {
	if who, known := w.Identify(r); known == nil {
		w.failAs(&Request{Request: r, Who: who, w: out}, err)
		return
	}
	e := fault.From(store.Explain(err))
	w.render(out, e.Code.Status(), "fault",
		view{Title: "That did not work", Theme: theme(r), CSS: w.css, JS: w.js, Data: e})
}

// Refuse shows why a form was refused before the dashboard saw it.
func (w *Web) Refuse(out http.ResponseWriter, r *http.Request, err error) {
	out.Header().Set("Content-Security-Policy", securityPolicy)
	w.fail(out, r, err)
}

// failAs shows an error inside the frame, to somebody who is signed in.
func (w *Web) failAs(r *Request, err error) {
	e := w.explain("a page of the dashboard failed", r.URL.Path, err)
	v := w.view(r)
	v.Title, v.Data = "That did not work", e
	w.render(r.w, e.Code.Status(), "fault", v)
}
