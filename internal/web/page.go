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
	"unicode/utf8"

	"signalbox/internal/address"
	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Page is one address that people look at.
type Page struct {
	Path     string // as net/http's ServeMux takes it, without the method
	Template string // a file of templates, without .html
	Title    string
	Section  string // the path of the entry of the menu that it belongs to
	// Live are the nouns of the entries after which the page is out of date: "gate" for
	// gate.opened and every other entry about gates.
	Live []string
	// Role is the least that may look, a viewer when empty.
	Role roster.Role
	// Load reads what the template shows as .Data.
	Load func(w *Web, r *Request) (any, error)
}

// Action is one address that forms are sent to.
type Action struct {
	Path string
	Role roster.Role // the least that may, an operator when empty
	// Choices are the values of the form's field "do", each with the least role that may choose
	// it, for a form with several buttons. Do gets the one that was chosen from Request.Choice.
	Choices map[string]roster.Role
	Do      func(w *Web, r *Request) (Result, error)
}

// Result is what follows from an action: another page, with a message there. Where
// Template is set, that page is shown at once, for what is only shown this once.
type Result struct {
	To    string
	Flash string

	Template string
	Title    string
	Section  string
	Data     any
}

// Pages and Actions are the whole dashboard.
func Pages() []Page {
	return slices.Concat(inboxPages(), overviewPages(), agentPages(), accountPages(), mailPages(), taskPages(),
		sessionPages(), runPages(), ledgerPages(), deliveryPages(), policyPages(), settingPages())
}

// Actions are what can be done there, each with the role that it takes.
func Actions() []Action {
	return slices.Concat(inboxActions(), agentActions(), accountActions(), mailActions(), taskActions(), runActions(),
		deliveryActions(), policyActions(), settingActions())
}

// menu is the navigation. Entries whose page is not there are left out.
var menu = []struct{ Path, Icon, Label, Group string }{
	{address.Inbox.At(), "inbox", "Inbox", ""},
	{address.Overview.At(), "chart", "Overview", ""},
	{address.Agents.At(), "agent", "Agents", ""},
	{address.Mail.At(), "mail", "Mail", "Work"},
	{address.Tasks.At(), "task", "Tasks", "Work"},
	{address.Sessions.At(), "session", "Sessions", "Work"},
	{address.Runs.At(), "run", "Runs", "Work"},
	{address.Ledger.At(), "ledger", "Ledger", "Record"},
	{address.Deliveries.At(), "send", "Deliveries", "Record"},
	{address.Policy.At(), "policy", "Policy", "Control"},
	{address.Settings.At(), "settings", "Settings", "Control"},
}

// Request is a call by somebody who is signed in.
type Request struct {
	*http.Request
	Who     roster.Identity
	w       http.ResponseWriter
	choices map[string]roster.Role // of the action
}

// May reports whether who asks has the role.
func (r *Request) May(role roster.Role) bool { return r.Who.Role.Allows(role) }

// needs refuses who has less than the role.
func needs(who roster.Identity, role roster.Role) error {
	if who.Role.Allows(role) {
		return nil
	}
	return fault.New(fault.Forbidden, "This takes the role %s, and %s has the role %s. Ask an admin.", role, who.Name,
		who.Role)
}

// Choice is which of the action's choices the form says, if who asks may choose it.
func (r *Request) Choice() (string, error) {
	choice := r.Field("do")
	role, known := r.choices[choice]
	if !known {
		return "", fault.New(fault.InvalidRequest, "The form should say one of %s.",
			strings.Join(slices.Sorted(maps.Keys(r.choices)), ", ")).About("do")
	}
	return choice, needs(r.Who, role)
}

// Query is a parameter of the address.
func (r *Request) Query(name string) string { return r.URL.Query().Get(name) }

// Field is a field of the form that was sent, without space around it.
func (r *Request) Field(name string) string { return strings.TrimSpace(r.PostFormValue(name)) }

// view is what a template sees.
type view struct {
	Title   string
	Section string
	Path    string // with its query, to come back to
	Who     roster.Identity
	Theme   string
	Flash   *flash
	Menu    []menuEntry
	Waiting int64
	Seq     int64 // the last entry when the page was made
	Topics  string
	CSS, JS string
	Data    any
}

type menuEntry struct {
	Path, Icon, Label string
	Group             string // the heading above it, where one begins
	Here              bool
	Count             int64
}

// May reports whether who looks has the role.
func (v view) May(role string) bool { return v.Who.Role.Allows(roster.Role(role)) }

const securityPolicy = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src " +
	"'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// answerTime is how long an answer may take to be taken; streams set their own.
const answerTime = time.Minute

// Handler serves everything below /ui/.
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
		h.Set("Cache-Control", "no-store")
		_ = http.NewResponseController(out).SetWriteDeadline(time.Now().Add(answerTime))
		if err := w.sameSite.Check(r); err != nil {
			w.fail(out, r, fault.New(fault.Forbidden,
				"This was sent from another site, and nothing was done. Open the page here and try again."))
			return
		}
		mux.ServeHTTP(out, r)
	})
}

// admit finds out who asks, and sends who is not signed in to do so.
func (w *Web) admit(out http.ResponseWriter, r *http.Request, role roster.Role) *Request {
	who, err := w.Identify(r)
	if fault.Is(err, fault.Unauthenticated) {
		to := address.Login.At()
		if r.Method == http.MethodGet {
			to += "?to=" + url.QueryEscape(r.URL.RequestURI())
		}
		http.Redirect(out, r, to, http.StatusSeeOther)
		return nil
	}
	if err == nil {
		err = needs(who, role)
	}
	if err == nil {
		err = wire.KnownQuery(r, wire.Route{Lenient: true})
	}
	r = r.WithContext(wire.WithScope(roster.With(r.Context(), who), who.Workspace))
	request := &Request{Request: r, Who: who, w: out}
	if err != nil {
		w.failAs(request, err)
		return nil
	}
	return request
}

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
	v.Title, v.Section, v.Topics, v.Data = p.Title, cmp.Or(p.Section, p.Path), strings.Join(p.Live, " "), data
	if titled, ok := data.(interface{ PageTitle() string }); ok {
		v.Title = titled.PageTitle()
	}
	w.render(out, http.StatusOK, p.Template, v)
}

// maxForm is the most that a form holds.
const maxForm = 2 << 20

func (w *Web) serveAction(out http.ResponseWriter, r *http.Request, a *Action) {
	request := w.admit(out, r, cmp.Or(a.Role, roster.Operator))
	if request == nil {
		return
	}
	request.choices = a.Choices
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
	if result.Template != "" {
		v := w.view(request)
		v.Title, v.Section, v.Data = result.Title, result.Section, result.Data
		w.render(out, http.StatusOK, result.Template, v)
		return
	}
	if result.Flash != "" {
		w.setFlash(out, flash{Text: result.Flash})
	}
	http.Redirect(out, request.Request, cmp.Or(result.To, back(request)), http.StatusSeeOther)
}

// clean refuses what no database could store.
func clean(form url.Values) error {
	for name, values := range form {
		for _, v := range values {
			if !utf8.ValidString(v) || strings.ContainsRune(v, 0) {
				return fault.New(fault.InvalidPayload, "The field %.80q contains a NUL or broken UTF-8.", name).About(name)
			}
		}
	}
	return nil
}

// actionFailed says why nothing was done, on the page that the form stands on.
func (w *Web) actionFailed(r *Request, result Result, err error) {
	e := w.explain("an action of the dashboard failed", r.URL.Path, err)
	w.setFlash(r.w, flash{Text: e.Message, Bad: true})
	http.Redirect(r.w, r.Request, cmp.Or(result.To, back(r)), http.StatusSeeOther)
}

// explain is what people are told of an error. The cause of one that is the server's own goes
// to the log.
func (w *Web) explain(what, path string, err error) *fault.Error {
	e := fault.From(store.Explain(err))
	if e.Code.Status() >= 500 {
		w.Log.Error(what, "path", path, "code", string(e.Code), "error", e.Error())
	}
	return e
}

// back is the page that a form was sent from.
func back(r *Request) string {
	if at := r.PostFormValue("back"); isOurs(at) {
		return at
	}
	if _, at, ok := strings.Cut(r.Referer(), r.Host); ok && isOurs(at) {
		return at
	}
	return address.Inbox.At()
}

// isOurs reports whether an address is a page of the dashboard and nothing else: a
// browser takes //host and /\host for other hosts.
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
		v.Menu = append(v.Menu, entry)
	}
	return v
}

// waiting is how many gates wait. A page is shown without the number rather than not.
func (w *Web) waiting(ctx context.Context, workspace string) (n, seq int64) {
	all, seq, err := w.queues.waiting(ctx, w, workspace)
	if err != nil {
		w.Log.Warn("cannot count the gates that wait", "error", err.Error())
	}
	for _, some := range all {
		n += some.Gates
	}
	return n, seq
}

// render writes a page when all of it could be made.
func (w *Web) render(out http.ResponseWriter, status int, name string, v view) {
	var page bytes.Buffer
	found := w.pages[name]
	if found == nil {
		w.Log.Error("a page has no template", "template", name)
		http.Error(out, "This page is missing from the program.", http.StatusInternalServerError)
		return
	}
	if err := found.ExecuteTemplate(&page, "layout", v); err != nil {
		w.Log.Error("a page could not be made", "template", name, "error", err.Error())
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

// failAs shows an error inside of the frame.
func (w *Web) failAs(r *Request, err error) {
	e := w.explain("a page of the dashboard failed", r.URL.Path, err)
	v := w.view(r)
	v.Title, v.Data = "That did not work", e
	w.render(r.w, e.Code.Status(), "fault", v)
}
