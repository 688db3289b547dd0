package server_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"signalbox/internal/testbed"
)

// TestAPageInABrowserWritesNothing opens pages of an attacker in a real browser on the server's machine: one of another
// origin, and one whose name leads to the server itself, as after a trick with DNS. Nobody is signed in, and
// somebody is; the pages can change nothing and read nothing that is not theirs.
func TestAPageInABrowserWritesNothing(t *testing.T) {
	t.Parallel()
	b := start(t, "", map[string]string{"mail.mesh.open": "127.0.0.0/8"})
	port := b.url[strings.LastIndexByte(b.url, ':')+1:]
	attacker := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>Kittens</title><body>Kittens"))
	}))
	// The browser finds every name of the attacker at this machine: at the attacker's own server by one,
	// at Signalbox by another.
	browser := chromium(t, chromedp.Flag("host-resolver-rules", "MAP *.evil.example 127.0.0.1"))
	victim := b.tab(t, browser, b.token())
	before := b.head()
	body, _ := registration("kitten", "default")
	elsewhere := strings.Replace(attacker, "127.0.0.1", "www.evil.example", 1)
	for name, page := range map[string]string{
		"another origin":                 attacker,
		"another site":                   elsewhere,
		"a name that leads to Signalbox": "http://rebound.evil.example:" + port,
	} {
		target := b.url
		if strings.Contains(page, "rebound") {
			target = page // the page's own origin, for the browser
		}
		ctx, end := chromedp.NewContext(victim.ctx)
		ctx, cancel := context.WithTimeout(ctx, 5*testbed.Patience)
		p := &tab{t, b, ctx}
		p.do(chromedp.Navigate(page + "/ledger/none"))
		for _, call := range []string{"/v1/register", "/v1/mesh/route", "/ui/login/password", "/ui/theme", "/ops/agents"} {
			for _, media := range []string{"application/json", "text/plain", ""} {
				for _, mode := range []string{"cors", "no-cors"} {
					got := send(p, target+call, body, media, mode)
					if got == "200" || got == "201" {
						t.Errorf("%s: POST %s as %q, %s: %s", name, call, media, mode, got)
					}
				}
			}
		}
		for _, call := range []string{"/v1/organization", "/metrics", "/ledger/checkpoint", "/ui/login", "/ops/agents"} {
			if got := read(p, target+call); strings.HasPrefix(got, "200") {
				t.Errorf("%s: reads %s: %.200s", name, call, got)
			}
		}
		// A form needs no permission of a browser to be sent anywhere.
		look[bool](p, fmt.Sprintf(`(() => { const f = document.createElement('form'); f.method = 'post'; f.enctype = 'text/plain';
f.action = %q; const i = document.createElement('input'); i.name = %q; i.value = '"}'; f.append(i); document.body.append(f);
f.submit(); return true })()`, target+"/v1/register", strings.TrimSuffix(body, "}")+`,"x":"`))
		p.until("the form was answered", `location.pathname === '/v1/register' && document.body.innerText.includes('error')`)
		cancel()
		end()
	}
	if wrote := b.head() - before; wrote != 0 {
		t.Errorf("pages wrote %d entries", wrote)
	}
	// The same call of a program works, so it was the browser that was refused.
	if status, answer, _ := b.do(request{call: "POST /v1/register", body: body}); status != 201 {
		t.Errorf("a program: %d %s", status, answer)
	}
}

// send has the page call an address, and returns the status that it sees, or why it sees none.
func send(p *tab, target, body, media, mode string) string {
	p.t.Helper()
	return await(p, fmt.Sprintf(`fetch(%q, {method: 'POST', mode: %q, credentials: 'include',
body: new Blob([%q], {type: %q})}).then(r => String(r.status), e => String(e))`, target, mode, body, media))
}

// read has the page read an address, and returns its status and text, or why it cannot.
func read(p *tab, target string) string {
	p.t.Helper()
	return await(p, fmt.Sprintf(`fetch(%q).then(async r => r.status + ' ' + await r.text(), e => String(e))`, target))
}

// await evaluates an expression in the page and waits for what it promises.
func await(p *tab, expression string) string {
	p.t.Helper()
	id := url.QueryEscape(expression)
	look[bool](p, fmt.Sprintf(`(window.answers ??= {}, (%s).then(v => { window.answers[%q] = v }), true)`, expression, id))
	p.until("an answer to "+expression, fmt.Sprintf(`window.answers[%q]`, id))
	return look[string](p, fmt.Sprintf(`window.answers[%q]`, id))
}
