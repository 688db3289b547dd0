package server_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"signalbox/internal/server"
	"signalbox/internal/server/servertest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// TestWhatIsOpenToThisMachineIsClosedFromElsewhere tries what a stranger would: to register an agent, to
// read the numbers, to have the server call this machine.
func TestWhatIsOpenToThisMachineIsClosedFromElsewhere(t *testing.T) {
	const open, closed = true, false
	nginx := map[string]string{"X-Forwarded-For": "203.0.113.7"}
	for name, c := range map[string]struct {
		settings, header            map[string]string
		register, metrics, loopback bool
	}{
		"this machine":     {nil, nil, open, open, open},
		"a local address":  {map[string]string{"public_url": "http://localhost:7446"}, nil, open, open, open},
		"every address":    {map[string]string{"listen": "0.0.0.0:0"}, nil, closed, closed, closed},
		"a public address": {map[string]string{"public_url": "https://box.example"}, nil, closed, closed, closed},
		"a proxy":          {map[string]string{"server.trusted_proxies": "127.0.0.1"}, nil, closed, closed, closed},
		"an unknown proxy": {nil, nginx, closed, closed, closed},
		"X-Real-IP":        {nil, map[string]string{"X-Real-IP": "203.0.113.7"}, closed, closed, closed},
		"Forwarded":        {nil, map[string]string{"Forwarded": "for=203.0.113.7"}, closed, closed, closed},
		"Via":              {nil, map[string]string{"Via": "1.1 gate"}, closed, closed, closed},
		"a mesh host":      {nil, map[string]string{"X-Forwarded-From": "host-b"}, open, open, open},
		"opened by somebody who knows": {map[string]string{
			"public_url": "https://box.example", "mail.registration": "open", "server.metrics": "open",
			"webhooks.allow": "127.0.0.0/8",
		}, nginx, open, open, open},
		"opened by somebody who knows of no proxy": {map[string]string{
			"mail.registration": "open", "server.metrics": "open",
		}, nginx, closed, closed, closed},
		"a proof does not help": {map[string]string{"mail.registration": "verified"}, nginx, closed, closed, closed},
		"closed on this machine": {map[string]string{
			"mail.registration": "owner", "server.metrics": "operators",
		}, nil, closed, closed, open},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			b := start(t, "", c.settings)
			// Whoever has a key chooses a webhook, so its wall is tried with one.
			_, key := b.addAgent("insider")
			before := b.head()
			want := func(what string, open bool, good, bad, status int, answer string) {
				t.Helper()
				if want := map[bool]int{true: good, false: bad}[open]; status != want {
					t.Errorf("%s: %d, want %d: %s", what, status, want, answer)
				}
			}
			body, _ := registration("stranger", "default")
			status, answer, _ := b.do(request{call: "POST /v1/register", body: body, header: c.header})
			want("register", c.register, 201, 401, status, answer)
			status, answer, _ = b.do(request{call: "GET /metrics", header: c.header})
			want("metrics", c.metrics, 200, 401, status, answer)
			if status, _, _ := b.do(request{call: "GET /metrics", token: b.token(), header: c.header}); status != 200 {
				t.Errorf("/metrics with a token: %d", status)
			}
			if c.register == closed && b.head() != before {
				t.Error("a stranger has written something")
			}
			status, answer, _ = b.do(request{
				call: "PATCH /v1/agents/me", token: key, header: c.header,
				body: `{"delivery":{"webhook_url":"http://127.0.0.1:1/x"}}`,
			})
			want("webhook", c.loopback, 200, 400, status, answer)
		})
	}
}

// TestWhatNginxSendsByDefault has no header that names a proxy: its requests are those of HTTP/1.0.
func TestWhatNginxSendsByDefault(t *testing.T) {
	b := start(t, "", nil)
	body, _ := registration("stranger", "default")
	conn := dial(t, b)
	text := "POST /v1/register HTTP/1.0\r\nHost: " + strings.TrimPrefix(b.url, "http://") +
		"\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), " 401 ") {
		t.Errorf("%v %s", err, answer)
	}
	var s server.Status
	b.ops(200, "GET /ops/status", "", &s)
	if s.Forwarder == nil || s.Forwarder.Sign != "HTTP/1.0" || s.Forwarder.Address != "127.0.0.1" {
		t.Errorf("the operator is not told of the proxy: %+v", s.Forwarder)
	}
}

// TestEveryPublicCallIsSafeFromPages goes through every route that the server asks for no credential.
// Those whose handlers ask for one refuse a call that has none; the others refuse what a page of another site,
// or one whose name was made to lead here, can send.
func TestEveryPublicCallIsSafeFromPages(t *testing.T) {
	config := servertest.Load(t, map[string]string{"mail.mesh.open": "127.0.0.0/8"})
	s, err := server.New(t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(*server.Server) { close(ready) }) }()
	defer func() {
		stop()
		if err := testbed.Receive(t, "the end", done); err != nil {
			t.Error(err)
		}
	}()
	testbed.Receive(t, "the server", ready)
	routes, all := s.PublicRoutes()
	ask := func(route wire.Route, edit func(*http.Request)) *httptest.ResponseRecorder {
		path := strings.NewReplacer("{", "", "}", "", "...", "").Replace(route.Path)
		r := httptest.NewRequestWithContext(t.Context(), route.Method, path, strings.NewReader(`{}`))
		r.Host, r.RemoteAddr = "127.0.0.1:7446", "127.0.0.1:40000"
		r.Header.Set("Content-Type", "application/json")
		edit(r)
		w := httptest.NewRecorder()
		all.ServeHTTP(w, r)
		return w
	}
	writes, open := 0, 0
	for _, route := range routes {
		bare := ask(route, func(*http.Request) {})
		if slices.Contains(route.Proof, wire.Demanded) {
			if bare.Code < 400 || bare.Code >= 500 {
				t.Errorf("%s %s demands no credential: %d %s", route.Method, route.Path, bare.Code, bare.Body)
			}
			continue
		}
		tricks := map[string]func(*http.Request){
			"rebinding": func(r *http.Request) { r.Host = "evil.example:7446" },
			"rebinding, as browsers say it": func(r *http.Request) {
				r.Host = "evil.example:7446"
				r.Header.Set("Origin", "http://evil.example:7446")
				r.Header.Set("Sec-Fetch-Site", "same-origin")
			},
			"a credential that the handler does not look at": func(r *http.Request) {
				r.Host = "evil.example:7446"
				for _, name := range []string{"X-Api-Key", "X-Hub-Signature-256", "X-AMP-Signature"} {
					r.Header.Set(name, "anything")
				}
			},
		}
		if route.Method == http.MethodGet {
			open++
			if route.Path == "/healthz" || route.Path == "/readyz" {
				continue // load balancers call them by any name, and they say nothing
			}
		} else {
			writes++
			tricks["another site"] = func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }
			tricks["another site, by fetch"] = func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
			tricks["another server of this machine"] = func(r *http.Request) {
				r.Header.Set("Origin", "http://127.0.0.1:9999")
				r.Header.Set("Sec-Fetch-Site", "same-site")
			}
			tricks["a sandboxed frame"] = func(r *http.Request) { r.Header.Set("Origin", "null") }
			for _, media := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"} {
				tricks[media] = func(r *http.Request) { r.Header.Set("Content-Type", media) }
			}
			tricks["no type, by a browser"] = func(r *http.Request) {
				r.Header.Del("Content-Type")
				r.Header.Set("Sec-Fetch-Site", "same-origin")
			}
		}
		for name, trick := range tricks {
			got := ask(route, trick)
			if got.Code != http.StatusForbidden && got.Code != http.StatusUnsupportedMediaType {
				t.Errorf("%s %s: %s: %d %s", route.Method, route.Path, name, got.Code, got.Body)
			}
		}
		if bare.Code == http.StatusForbidden || bare.Code == http.StatusUnsupportedMediaType {
			t.Errorf("%s %s refuses a program: %d %s", route.Method, route.Path, bare.Code, bare.Body)
		}
	}
	if writes < 2 || open < 5 {
		t.Errorf("%d writes and %d reads are open, which are too few to be all", writes, open)
	}
}

// TestTheNamesOfAServer are those by which the dashboard may be called.
func TestTheNamesOfAServer(t *testing.T) {
	b := start(t, "", map[string]string{"public_url": "https://box.example", "server.hosts": "second.example"})
	for host, want := range map[string]int{
		"localhost:9000": 200, "box.example": 200, "BOX.example.": 200, "second.example:80": 200, "10.1.2.3:7446": 200,
		"[::1]:7446": 200, "relay.localhost": 200, "evil.example": 403, "box.example.evil.example": 403,
		"localhost.evil.example": 403, "127.0.0.1.evil.example": 403,
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/ui/login", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := b.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		page, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != want || want == 403 && !strings.Contains(string(page), "server.hosts") {
			t.Errorf("%s: %d, want %d: %.300s", host, res.StatusCode, want, page)
		}
	}
}

// TestTrustedProxies are believed about the client, and others are not.
func TestTrustedProxies(t *testing.T) {
	open := map[string]string{"server.trusted_proxies": "127.0.0.1,10.0.0.0/8", "mail.registration": "open"}
	b := start(t, "", open)
	via := func(forwarded, name string) int {
		body, _ := registration(name, "default")
		status, _, _ := b.do(request{
			call: "POST /v1/register", body: body,
			header: map[string]string{"X-Forwarded-For": forwarded},
		})
		return status
	}
	// The limit counts the address that the nearest proxy saw; what is left of it is claimed by the client.
	for i := range 10 {
		if status := via("198.51.100."+strconv.Itoa(i)+", 203.0.113.7, 10.0.0.2", "agent-"+strconv.Itoa(i)); status != 201 {
			t.Fatalf("registration %d: %d", i, status)
		}
	}
	if status := via("127.0.0.1, 203.0.113.7", "agent-x"); status != 429 {
		t.Errorf("the limit follows what the client claims: %d", status)
	}
	if status := via("203.0.113.8", "agent-y"); status != 201 {
		t.Errorf("another client is counted with the first: %d", status)
	}
	secure := map[string]string{"X-Forwarded-Proto": "https", "X-Forwarded-Host": "box.example"}
	_, _, header := b.do(request{call: "GET /healthz", header: secure})
	if got := header.Get("Strict-Transport-Security"); got != "max-age=31536000" {
		t.Errorf("HSTS: %q", got)
	}
	if _, _, header := b.do(request{call: "GET /healthz"}); header.Get("Strict-Transport-Security") != "" {
		t.Error("HSTS without TLS")
	}
	form := request{call: "POST /ui/theme", body: "theme=dark", media: "application/x-www-form-urlencoded"}
	for _, c := range []struct {
		header map[string]string
		secure bool
	}{{map[string]string{"X-Forwarded-Proto": "https"}, true}, {nil, false}} {
		form.header = c.header
		b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		_, _, header := b.do(form)
		if got := strings.Contains(header.Get("Set-Cookie"), "; Secure"); got != c.secure {
			t.Errorf("%v: %s", c.header, header.Get("Set-Cookie"))
		}
	}

	other := start(t, "", map[string]string{"server.trusted_proxies": "10.0.0.0/8"})
	if _, _, header := other.do(request{call: "GET /healthz", header: secure}); header.Get("Strict-Transport-Security") != "" {
		t.Error("anybody can say that there is TLS")
	}
}

// TestTLSIsKeptByBrowsers except for loopback, where other servers of the machine would be out of reach.
func TestTLSIsKeptByBrowsers(t *testing.T) {
	dir := t.TempDir()
	pool := testbed.SelfSigned(t, dir, "127.0.0.1", 1)
	b := start(t, "", map[string]string{"tls.cert": dir + "/cert.pem", "tls.key": dir + "/key.pem"})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	for host, want := range map[string]string{"box.example": "max-age=31536000", "localhost": "", "127.0.0.1": ""} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		if got := res.Header.Get("Strict-Transport-Security"); got != want {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}

// TestKeysInAddresses are taken where protocols have them there, and can be closed.
func TestKeysInAddresses(t *testing.T) {
	for _, allowed := range []string{"true", "false"} {
		b := start(t, "", map[string]string{"server.url_keys": allowed})
		_, key := b.addAgent("walker")
		for _, path := range []string{"/v1/proxy/a/" + key + "/v1/models", "/ahp?api_key=" + strings.ReplaceAll(key, "-", "%2D")} {
			_, answer, _ := b.do(request{call: "GET " + path})
			if refused := strings.Contains(answer, "server.url_keys"); refused != (allowed == "false") {
				t.Errorf("url_keys %s: %s: %s", allowed, path[:10], answer)
			}
		}
	}
}

// TestUnprovenHostsAreNotBelievedThroughAProxy holds although the proxy is in the network that is believed.
func TestUnprovenHostsAreNotBelievedThroughAProxy(t *testing.T) {
	b := start(t, "", map[string]string{
		"mail.mesh.host": "host-a", "mail.mesh.hosts": "host-b=http://127.0.0.1:1", "mail.mesh.open": "127.0.0.0/8",
		"public_url": "https://box.example",
	})
	agent := b.ownerless(t)
	ask := func(header map[string]string) int {
		header["X-Forwarded-From"] = "host-b"
		status, _, _ := b.do(request{call: "GET /v1/agents/by-name/" + agent, header: header})
		return status
	}
	if status := ask(map[string]string{}); status != 200 {
		t.Errorf("a host in the network: %d", status)
	}
	if status := ask(map[string]string{"X-Forwarded-For": "203.0.113.7"}); status != 401 {
		t.Errorf("a stranger behind a proxy in the network: %d", status)
	}
}

// ownerless registers an agent as an operator, and returns its address.
func (b *box) ownerless(t *testing.T) string {
	t.Helper()
	body, _ := registration("at-home", "default")
	status, answer, _ := b.do(request{call: "POST /v1/register", body: body, token: b.token()})
	var out struct{ Address string }
	if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 201 {
		t.Fatalf("%d %s", status, answer)
	}
	return out.Address
}

// TestDoctorKnowsTheWalls lists the walls that are open with some settings.
func TestDoctorKnowsTheWalls(t *testing.T) {
	public := map[string]string{"public_url": "https://box.example", "server.trusted_proxies": "127.0.0.1"}
	with := func(key, value string) map[string]string {
		return map[string]string{
			"public_url": public["public_url"], "server.trusted_proxies": "127.0.0.1", "server.url_keys": "false",
			key: value,
		}
	}
	for name, c := range map[string]struct {
		settings map[string]string
		open     string
	}{
		"this machine":      {nil, ""},
		"nginx":             {with("x", ""), ""},
		"keys in addresses": {public, "keys in URLs"},
		"registration":      {with("mail.registration", "open"), "registration"},
		"proofs":            {with("mail.registration", "verified"), "registration"},
		"loopback webhooks": {with("webhooks.allow", "10.0.0.1, localhost"), "webhooks"},
		"metrics":           {with("server.metrics", "open"), "metrics"},
		"believed hosts":    {with("mail.mesh.open", "10.0.0.0/8"), "mail"},
		"every provider":    {with("mail.federation", "open"), "mail"},
		"unnamed proxy":     {with("server.trusted_proxies", ""), "proxies"},
		"trusts everybody":  {with("server.trusted_proxies", "0.0.0.0/0"), "proxies"},
		"no TLS":            {with("public_url", "http://box.example"), "TLS"},
		"every address": {
			map[string]string{"listen": ":7446", "server.url_keys": "false"}, "TLS",
		},
	} {
		delete(c.settings, "x")
		var open []string
		for _, w := range servertest.Load(t, c.settings).InForce().Walls() {
			if !w.Stands {
				open = append(open, w.What)
				if !strings.Contains(w.Text, "signalbox config set") && !strings.Contains(w.Text, "Set tls.cert") &&
					!strings.Contains(w.Text, "Name the proxy") {
					t.Errorf("%s: how to close it is not said: %s", name, w.Text)
				}
			}
		}
		if got := strings.Join(open, ","); got != c.open {
			t.Errorf("%s: open are %q, want %q", name, got, c.open)
		}
	}
}

// asked is the question of a terminal that signs in.
func (b *box) asked() string {
	b.t.Helper()
	status, answer, _ := b.do(request{call: "POST /login/cli", body: `{"machine":"m","user":"u","process":"p"}`})
	var out struct{ Question string }
	if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 201 {
		b.t.Fatalf("%d %s", status, answer)
	}
	return out.Question
}
