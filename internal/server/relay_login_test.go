package server_test

import (
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"

	"signalbox/internal/testbed"
)

// TestSigningInThroughOpenIDConnect signs in with a provider that others have written.
func TestSigningInThroughOpenIDConnect(t *testing.T) {
	var provider http.Handler
	issuer := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		provider.ServeHTTP(w, r)
	}))
	b := start(t, "", map[string]string{
		"oidc.issuer": issuer + "/", "oidc.client_id": "signalbox",
		"oidc.client_secret": "between us",
	})
	storage.RegisterClients(storage.WebClient("signalbox", "between us", b.url+"/ui/login/oidc/callback"))
	provider = exampleop.SetupServer(issuer+"/", storage.NewStorage(storage.NewUserStore(issuer)),
		slog.New(slog.DiscardHandler), false)

	// login goes through the provider's own form.
	login := func(v *visitor, user string) (status int, page string) {
		_, form, _ := v.post("/ui/login/oidc", nil)
		id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindStringSubmatch(form)
		if id == nil {
			t.Fatalf("the provider shows no form: %s", form)
		}
		status, page, _ = testbed.Call(t, v.Client, http.MethodPost, issuer+"/login/username",
			url.Values{"username": {user}, "password": {"verysecure"}, "id": {id[1]}}.Encode(),
			map[string]string{"Content-Type": "application/x-www-form-urlencoded"})
		return status, page
	}
	user := "test-user@" + strings.Split(strings.TrimPrefix(issuer, "http://"), ":")[0]

	if page := b.visitor().sees("/ui/login"); !strings.Contains(page, "Continue with 127.0.0.1") {
		t.Error("there is no button")
	}
	if status, page := login(b.visitor(), user); status != 403 ||
		!strings.Contains(page, "test-user@zitadel.ch, and no operator here has that address") {
		t.Errorf("somebody who is no operator: %d %s", status, page)
	}
	b.operator("tessa", "operator")
	b.ops(200, "PATCH /ops/operators/tessa", `{"contacts":{"email":"Test-User@zitadel.ch"}}`, nil)
	v := b.visitor()
	if status, page := login(v, user); status != 200 || !strings.Contains(page, "<h1>Inbox</h1>") {
		t.Fatalf("%d %s", status, page)
	}
	v.sees("/ui/account", "<h1>tessa</h1>")
	if got := b.lastEntries(1); got[0] != "login.opened by operator:tessa" {
		t.Error(got)
	}
	// What was begun in one browser cannot be finished in another.
	if status, page, _ := b.visitor().get("/ui/login/oidc/callback?code=x&state=y"); status != 401 ||
		!strings.Contains(page, "not begun in this browser") {
		t.Errorf("%d %s", status, page)
	}
}

func TestSigningIn(t *testing.T) {
	eachBox(t, func(t *testing.T, b *box) {
		t.Run("who is not signed in is asked to, and comes back", func(t *testing.T) {
			v := b.visitor()
			status, page, _ := v.get("/")
			if status != 200 || !strings.Contains(page, "Sign in to Signalbox") ||
				!strings.Contains(page, `name="to" value="/ui/inbox"`) {
				t.Errorf("%d %s", status, page)
			}
		})
		t.Run("a code is good once", func(t *testing.T) {
			address := b.loginURL(b.token())
			code := address[strings.Index(address, "code=")+5:]
			first, second := b.visitor(), b.visitor()
			if status, page, _ := first.get("/ui/login?code=" + code); status != 200 || !strings.Contains(page, code) {
				t.Fatalf("the code is not in the form: %s", page)
			}
			if status, _, _ := first.get("/ui/inbox"); status != 200 {
				t.Fatal(status)
			}
			if status, page, _ := first.post("/ui/login/code",
				url.Values{"code": {code}, "to": {"/ui/agents"}}); status != 200 || !strings.Contains(page, "<h1>Agents</h1>") {
				t.Errorf("%d %s", status, page)
			}
			if status, page, _ := second.post("/ui/login/code", url.Values{"code": {code}}); status != 401 ||
				!strings.Contains(page, "used already") {
				t.Errorf("a second use: %d %s", status, page)
			}
			if got := b.lastEntries(2); !slices.Equal(got,
				[]string{"login.offered by operator:admin", "login.opened by operator:admin"}) {
				t.Error(got)
			}
		})
		t.Run("a link can lead nowhere else", func(t *testing.T) {
			for _, to := range []string{"//evil.example/ui/", "https://evil.example/ui/", "/ui/\\evil.example", "/ops/policy"} {
				address := b.loginURL(b.token())
				v := b.visitor()
				v.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				status, _, header := v.post("/ui/login/code",
					url.Values{"code": {address[strings.Index(address, "code=")+5:]}, "to": {to}})
				if got := header.Get("Location"); status != 303 || got != "/ui/inbox" && !strings.HasPrefix(got, "/ui/%5C") {
					t.Errorf("%s: %d %s", to, status, got)
				}
			}
		})
		t.Run("signing out ends the session, and so does the person's removal", func(t *testing.T) {
			v := b.signedIn(b.operator("otto", "operator"))
			kept := b.visitor()
			kept.Jar = v.Jar
			status, page, _ := v.post("/ui/logout", nil)
			if status != 200 || !strings.Contains(page, "You are signed out") {
				t.Fatalf("%d %s", status, page)
			}
			v = b.signedIn(b.operator("olga", "operator"))
			b.ops(204, "DELETE /ops/operators/olga", "", nil)
			if _, page, _ := v.get("/ui/inbox"); !strings.Contains(page, "Sign in to Signalbox") {
				t.Error("somebody who was removed is still signed in")
			}
		})
		t.Run("a password", func(t *testing.T) {
			token := b.operator("pia", "operator")
			v, other := b.signedIn(token), b.signedIn(token)
			if _, page, _ := v.post("/ui/account/password",
				url.Values{"password": {"short"}, "again": {"short"}}); !strings.Contains(page, "12 to") {
				t.Errorf("a short one: %s", page)
			}
			if _, page, _ := v.post("/ui/account/password",
				url.Values{"password": {"five words make a sentence"}, "again": {"five words"}}); !strings.Contains(page,
				"differ") {
				t.Errorf("two different ones: %s", page)
			}
			const right = "five words make a sentence"
			if _, page, _ := v.post("/ui/account/password",
				url.Values{"password": {right}, "again": {right}}); !strings.Contains(page, "Your password is set") {
				t.Errorf("%s", page)
			}
			if _, page, _ := other.get("/ui/inbox"); !strings.Contains(page, "Sign in to Signalbox") {
				t.Error("other sessions go on")
			}
			v = b.visitor()
			for _, wrong := range []url.Values{
				{"name": {"pia"}, "password": {"five words make a sentencE"}},
				{"name": {"nobody"}, "password": {right}},
				{"name": {"admin"}, "password": {""}},
			} {
				if status, page, _ := v.post("/ui/login/password", wrong); status != 401 ||
					!strings.Contains(page, "The name or the password is wrong") {
					t.Errorf("%v: %d %s", wrong, status, page)
				}
			}
			if status, page, _ := v.post("/ui/login/password",
				url.Values{"name": {"pia"}, "password": {right}}); status != 200 || !strings.Contains(page, "<h1>Inbox</h1>") {
				t.Errorf("%d %s", status, page)
			}
			if got := b.lastEntries(2); !slices.Equal(got, []string{"login.refused by system", "login.opened by operator:pia"}) {
				t.Error(got)
			}
			if _, kept, _ := b.do(request{call: "GET /ops/ledger?kind=password.set", token: b.token()}); !strings.Contains(kept,
				"argon2id-hmac$v=19$m=19456,t=2,p=1$") || strings.Contains(kept, right) {
				t.Errorf("the ledger: %s", kept)
			}
			limited := false
			for range 6 {
				status, _, _ := b.visitor().post("/ui/login/password",
					url.Values{"name": {"pia"}, "password": {"a guess of some length"}})
				limited = limited || status == 429
			}
			if !limited {
				t.Error("guesses are not limited")
			}
		})
		t.Run("a session stands in for a token, but not from another site", func(t *testing.T) {
			v := b.signedIn(b.token())
			if status, answer, _ := v.get("/ops/agents"); status != 200 {
				t.Errorf("%d %s", status, answer)
			}
			if status, answer, _ := v.send("POST", "/ops/login", nil,
				map[string]string{"Sec-Fetch-Site": "cross-site"}); status != 403 {
				t.Errorf("%d %s", status, answer)
			}
			if status, _, _ := v.send("POST", "/ops/login", nil, map[string]string{"Sec-Fetch-Site": "same-origin"}); status != 201 {
				t.Error(status)
			}
		})
		t.Run("the tables follow from the ledger", func(*testing.T) {
			b.wantRebuilt(1)
		})
	})
}

func TestCodesAndSessionsRunOut(t *testing.T) {
	b := start(t, "", map[string]string{"clock.movable": "true"})
	later := func(d time.Duration) {
		t.Helper()
		var now struct{ Now time.Time }
		b.ops(200, "GET /ops/clock", "", &now)
		b.ops(200, "PUT /ops/clock", `{"now":"`+now.Now.Add(d).Format(time.RFC3339Nano)+`"}`, nil)
	}
	code := func(address string) string { return address[strings.Index(address, "code=")+5:] }
	fresh, stale := code(b.loginURL(b.token())), code(b.loginURL(b.token()))
	_, key := b.addAgent("writer")
	b.ask(key, "writer", "run-1", "Send the letter")
	if len(fresh) > 32 {
		t.Errorf("a code has %d letters", len(fresh))
	}
	later(4 * time.Minute)
	v := b.visitor()
	if status, page, _ := v.post("/ui/login/code", url.Values{"code": {strings.ToLower(fresh)}}); status != 200 ||
		!strings.Contains(page, "<h1>Inbox</h1>") {
		t.Fatalf("after four minutes: %d %s", status, page)
	}
	later(time.Minute)
	// until its byte of time comes round again
	for _, wait := range []time.Duration{0, 256*10*time.Second - 5*time.Minute} {
		later(wait)
		if status, page, _ := b.visitor().post("/ui/login/code", url.Values{"code": {stale}}); status != 401 ||
			!strings.Contains(page, "older than five minutes") {
			t.Errorf("after five minutes and %s: %d %s", wait, status, page)
		}
	}
	for _, guess := range []string{"", "x", strings.Repeat("A", 32), fresh[:31] + "=", stale[:8] + fresh[8:]} {
		if status, _, _ := b.visitor().post("/ui/login/code", url.Values{"code": {guess}}); status != 401 {
			t.Errorf("%q signs in: %d", guess, status)
		}
	}
	v.sees("/ui/inbox?age=10m", "Send the letter")
	v.sees("/ui/inbox?age=1h", "Nothing matches")
	later(6 * 24 * time.Hour)
	v.sees("/ui/inbox?age=24h", "Send the letter")
	later(24 * time.Hour)
	if _, page, _ := v.get("/ui/inbox"); !strings.Contains(page, "Sign in to Signalbox") {
		t.Error("a session does not end")
	}
	if status, _, _ := v.get("/ops/agents"); status != 401 {
		t.Errorf("a session that has ended still stands in for a token: %d", status)
	}
}
