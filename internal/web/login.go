package web

import (
	"cmp"
	"net/http"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/roster"
)

// loginForm is what the page shows to who is not signed in.
type loginForm struct {
	Code    string
	To      string
	Name    string
	Problem string
	OIDC    string // what the provider is called, "" for none
}

func (w *Web) mountLogin(mux *http.ServeMux) {
	mux.HandleFunc("GET "+address.Login.At(), w.showLogin)
	mux.HandleFunc("POST "+address.Login.Of("code"), w.loginByCode)
	mux.HandleFunc("POST "+address.Login.Of("password"), w.loginByPassword)
	mux.HandleFunc("POST "+address.Login.Of("oidc"), w.loginByOIDC)
	mux.HandleFunc("GET "+callback, w.oidcCallback)
	mux.HandleFunc("POST /ui/theme", w.setTheme)
}

// showLogin never signs in by itself: whoever makes another follow a link would decide
// who that other is here. The code in the address fills in the form.
func (w *Web) showLogin(out http.ResponseWriter, r *http.Request) {
	w.loginPage(out, r, http.StatusOK, loginForm{Code: r.URL.Query().Get("code"), To: r.URL.Query().Get("to")})
}

func (w *Web) loginPage(out http.ResponseWriter, r *http.Request, status int, f loginForm) {
	f.OIDC = w.OIDC.name()
	w.render(out, status, "login",
		view{
			Title: "Sign in", Path: string(address.Login), Theme: theme(r), Flash: w.takeFlash(out, r), CSS: w.css, JS: w.js,
			Data: f,
		})
}

// loginFailed shows the form again with what was wrong.
func (w *Web) loginFailed(out http.ResponseWriter, r *http.Request, f loginForm, err error) {
	e := w.explain("a login failed", r.URL.Path, err)
	f.Problem = e.Message
	w.loginPage(out, r, e.Code.Status(), f)
}

// signedIn sets the cookie and goes where the person wanted to.
func (w *Web) signedIn(out http.ResponseWriter, r *http.Request, token, to string) {
	w.setCookie(out, sessionCookie, token, int(sessionLife.Seconds()))
	if !isOurs(to) || strings.HasPrefix(to, address.Login.At()) {
		to = address.Inbox.At()
	}
	http.Redirect(out, r, to, http.StatusSeeOther)
}

func (w *Web) loginByCode(out http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(out, r.Body, 1<<14)
	token, err := w.redeem(r.Context(), r.PostFormValue("code"))
	if err != nil {
		w.loginFailed(out, r, loginForm{To: r.PostFormValue("to")}, err)
		return
	}
	w.signedIn(out, r, token, r.PostFormValue("to"))
}

func (w *Web) loginByPassword(out http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(out, r.Body, 1<<14)
	name := r.PostFormValue("name")
	var token string
	err := r.ParseForm()
	if err == nil {
		err = clean(r.PostForm)
	}
	if err == nil {
		token, err = w.enter(r.Context(), name, r.PostFormValue("password"))
	}
	if err != nil {
		w.loginFailed(out, r, loginForm{To: r.PostFormValue("to"), Name: name}, err)
		return
	}
	w.signedIn(out, r, token, r.PostFormValue("to"))
}

// setTheme remembers whether the person wants it light or dark.
func (w *Web) setTheme(out http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(out, r.Body, 1<<14)
	w.setCookie(out, themeCookie, r.PostFormValue("theme"), 365*24*3600)
	to := r.PostFormValue("back")
	http.Redirect(out, r, cmp.Or(map[bool]string{true: to}[isOurs(to)], address.Inbox.At()), http.StatusSeeOther)
}

// accountPages are about who is signed in.
func accountPages() []Page {
	return []Page{{Path: string(address.Account), Template: "account", Title: "Your account", Load: (*Web).loadAccount}}
}

func accountActions() []Action {
	return []Action{
		{Path: "/ui/logout", Role: roster.Viewer, Do: (*Web).signOut},
		{Path: address.Account.Of("password"), Role: roster.Viewer, Do: (*Web).changePassword},
		{Path: address.Account.Of("delegate"), Do: (*Web).delegate},
		{Path: address.Account.Of("undelegate"), Do: (*Web).undelegate},
	}
}
