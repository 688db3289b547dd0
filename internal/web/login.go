package web

import (
	"cmp"
	"net/http"
	"strings"

	"signalbox/internal/address"
)

// loginForm is what the login page shows.
type loginForm struct {
	Code    string
	To      string
	Name    string
	Problem string
	OIDC    string // what the provider is called, "" for none
}

// mountLogin mounts what works without being signed in.
func (w *Web) mountLogin(mux *http.ServeMux) {
	mux.HandleFunc("GET "+address.Login.At(), w.showLogin)
	mux.HandleFunc("POST "+address.Login.Of("code"), w.loginByCode)
	mux.HandleFunc("POST "+address.Login.Of("password"), w.loginByPassword)
	mux.HandleFunc("POST "+address.Login.Of("oidc"), w.loginByOIDC)
	mux.HandleFunc("GET "+callback, w.oidcCallback)
	mux.HandleFunc("POST /ui/theme", w.setTheme)
}

// showLogin never signs in by itself. Otherwise whoever makes somebody follow a link could sign
// them in as another person and see what they do. The code in the address fills in the form.
func (w *Web) showLogin(out http.ResponseWriter, r *http.Request) {
	w.loginPage(out, r, http.StatusOK, loginForm{Code: r.URL.Query().Get("code"), To: r.URL.Query().Get("to")})
}

// loginPage renders the login page.
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
	// The name stays in the form, the password never does.
	e := w.explain("a login failed", r.URL.Path, err)
	f.Problem = e.Message
	w.loginPage(out, r, e.Code.Status(), f)
}

// signedIn sets the cookie and goes where the person wanted to. Only pages of ours are accepted as
// destinations, so the login cannot be used to redirect to another site.
func (w *Web) signedIn(out http.ResponseWriter, r *http.Request, token, to string) {
	w.setCookie(out, r, sessionCookie, token, int(sessionLife.Seconds()))
	// Back to the login page would be a loop.
	if !isOurs(to) || strings.HasPrefix(to, address.Login.At()) {
		to = address.Inbox.At()
	}
	http.Redirect(out, r, to, http.StatusSeeOther)
}

// loginByCode signs in with a code from `signalbox login`.
func (w *Web) loginByCode(out http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(out, r.Body, 1<<14)
	token, err := w.redeem(r.Context(), r.PostFormValue("code"))
	if err != nil {
		w.loginFailed(out, r, loginForm{To: r.PostFormValue("to")}, err)
		return
	}
	w.signedIn(out, r, token, r.PostFormValue("to"))
}

// loginByPassword signs in with name and password.
func (w *Web) loginByPassword(out http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(out, r.Body, 1<<14)
	name := r.PostFormValue("name")
	var token string
	// A form that cannot be read, or holds a NUL, must not reach the database.
	err := r.ParseForm()
	if err == nil {
		err = clean(r.PostForm)
	}
	if err == nil {
		token, err = w.signInByPassword(r.Context(), name, r.PostFormValue("password"))
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
	w.setCookie(out, r, themeCookie, r.PostFormValue("theme"), 365*24*3600)
	to := r.PostFormValue("back")
	http.Redirect(out, r, cmp.Or(map[bool]string{true: to}[isOurs(to)], address.Inbox.At()), http.StatusSeeOther)
}
