package web

import (
	"encoding/base64"
	"net/http"
	"strings"
)

// flash is a message that the next page shows once. It travels in a cookie, so it needs no session
// and no table.
type flash struct {
	Text string
	Bad  bool
}

const (
	// The cookies are ours alone; their values are checked like anything else from a browser.
	flashCookie = "signalbox_flash"
	themeCookie = "signalbox_theme"
	maxFlash    = 600 // bytes, so that the cookie stays small
)

// setFlash has the next page show a message.
func (w *Web) setFlash(out http.ResponseWriter, r *http.Request, f flash) {
	kind := "+"
	if f.Bad {
		kind = "-"
	}
	text := f.Text
	if len(text) > maxFlash {
		text = strings.ToValidUTF8(text[:maxFlash], "") + "…"
	}
	w.setCookie(out, r, flashCookie, base64.RawURLEncoding.EncodeToString([]byte(kind+text)), 60)
}

// takeFlash is the message for this page, nil if there is none, and removes it. A refresh by the
// script leaves it for the page that a person opens.
func (w *Web) takeFlash(out http.ResponseWriter, r *http.Request) *flash {
	cookie, err := r.Cookie(flashCookie)
	if err != nil || r.Header.Get(partHeader) != "" { // it is for the page that a person opens
		return nil
	}
	w.setCookie(out, r, flashCookie, "", -1)
	text, err := base64.RawURLEncoding.DecodeString(cookie.Value)
	if err != nil || len(text) < 2 {
		return nil
	}
	return &flash{Text: string(text[1:]), Bad: text[0] == '-'}
}

// theme is "light", "dark", or "" for what the browser prefers.
func theme(r *http.Request) string {
	cookie, err := r.Cookie(themeCookie)
	if err == nil && (cookie.Value == "light" || cookie.Value == "dark") {
		return cookie.Value
	}
	return ""
}
