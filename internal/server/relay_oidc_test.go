package server_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
)

// TestSigningInThroughOpenIDConnect signs in with a provider that others have written.
func TestSigningInThroughOpenIDConnect(t *testing.T) {
	var provider http.Handler
	issuer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		provider.ServeHTTP(w, r)
	}))
	defer issuer.Close()
	b := start(t, "", map[string]string{
		"oidc.issuer": issuer.URL + "/", "oidc.client_id": "signalbox",
		"oidc.client_secret": "between us",
	})
	storage.RegisterClients(storage.WebClient("signalbox", "between us", b.url+"/ui/login/oidc/callback"))
	provider = exampleop.SetupServer(issuer.URL+"/", storage.NewStorage(storage.NewUserStore(issuer.URL)),
		slog.New(slog.DiscardHandler), false)

	// login goes through the provider's own form.
	login := func(v *visitor, user string) (status int, page string) {
		_, form, _ := v.post("/ui/login/oidc", nil)
		id := regexp.MustCompile(`name="id" value="([^"]+)"`).FindStringSubmatch(form)
		if id == nil {
			t.Fatalf("the provider shows no form: %s", form)
		}
		res, err := v.PostForm(issuer.URL+"/login/username",
			url.Values{"username": {user}, "password": {"verysecure"}, "id": {id[1]}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = res.Body.Close() }()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	user := "test-user@" + strings.Split(strings.TrimPrefix(issuer.URL, "http://"), ":")[0]

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
