package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"signalbox/internal/roster"
	"signalbox/internal/testbed"
)

// nginxProgram finds nginx, as a package or as scripts/test-tools has unpacked it.
func nginxProgram(t testing.TB) string {
	t.Helper()
	return testbed.Program(t, "nginx", "/usr/sbin/nginx", testbed.Cache(t, "signalbox-test-nginx/usr/sbin/nginx"))
}

// behindNginx runs nginx with TLS in front of a server, as https://box.example, with the lines in its location, and
// returns a client that calls it by that name.
func behindNginx(t testing.TB, upstream, lines string) *http.Client {
	t.Helper()
	dir := t.TempDir()
	pool := testbed.SelfSigned(t, dir, "box.example", 1)
	at := testbed.FreeAddress(t)
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // nobody could not write into the folder of the test
	}
	temp := ""
	for _, kind := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		temp += fmt.Sprintf("%s_temp_path %s/%s;\n", kind, dir, kind)
	}
	text := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr; worker_processes 1; %[2]s
events {}
http {
  access_log off;
  %[3]s
  server {
    listen %[4]s ssl; server_name box.example; ssl_certificate %[1]s/cert.pem; ssl_certificate_key %[1]s/key.pem;
    location / { proxy_pass %[5]s; %[6]s }
  }
}
`, dir, user, temp, at, upstream, lines)
	conf := filepath.Join(dir, "nginx.conf")
	testbed.Write(t, conf, text)
	testbed.Background(t, exec.CommandContext(context.Background(), nginxProgram(t), "-e", "stderr", "-p", dir, "-c", conf))
	jar, _ := cookiejar.New(nil) // never fails
	client := &http.Client{Timeout: testbed.Patience, Jar: jar, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, at)
		},
	}}
	t.Cleanup(client.CloseIdleConnections)
	testbed.Until(t, "nginx answers", func() bool {
		status, _, _ := through(t, client, "GET /healthz", "", nil)
		return status == http.StatusOK
	})
	return client
}

// through makes a call through nginx without a credential. The status is 0 if there is no answer.
func through(t testing.TB, client *http.Client, call, body string, header map[string]string) (int, string, http.Header) {
	t.Helper()
	method, path, _ := strings.Cut(call, " ")
	req, err := http.NewRequestWithContext(t.Context(), method, "https://box.example"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range header {
		req.Header.Set(name, value)
	}
	res, err := client.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer func() { _ = res.Body.Close() }()
	text, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(text), res.Header
}

// TestAStrangerBehindNginx puts the real nginx with TLS before the real server: as somebody does who changes nothing
// else, as the manuals say, and as docs/operating.md says. A stranger can do nothing in any of them.
func TestAStrangerBehindNginx(t *testing.T) {
	nginxProgram(t)
	const manual = `proxy_set_header Host $host; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
proxy_set_header X-Forwarded-Proto $scheme;`
	for name, c := range map[string]struct {
		lines  string
		args   []string
		doctor []string
	}{
		"nothing else": {doctor: []string{"OPEN   unknown proxy", "server.trusted_proxies 127.0.0.1"}},
		"the manual":   {lines: manual, doctor: []string{"OPEN   unknown proxy", "X-Forwarded-"}},
		"public_url":   {lines: manual, args: []string{"public_url: https://box.example"}, doctor: []string{"OPEN   proxies"}},
		"operating.md": {
			lines: manual,
			args:  []string{"public_url: https://box.example", "server.trusted_proxies: 127.0.0.1", "server.url_keys: false"},
			doctor: []string{
				"stands registration", "stands webhooks", "stands mail", "stands metrics", "stands keys in URLs", "stands TLS",
				"stands proxies",
			},
		},
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			configure(t, dir, strings.Join(c.args, "\n"))
			p := up(t, dir)
			local := testbed.Read(t, filepath.Join(dir, "server.url"))
			p.url = strings.TrimSpace(string(local))
			client := behindNginx(t, p.url, c.lines)
			strangerAtNginx(t, p, client)
			out := mustRun(t, dir, "doctor")
			for _, want := range c.doctor {
				if !strings.Contains(out, want) {
					t.Errorf("doctor does not say %q:\n%s", want, out)
				}
			}
			if name == "operating.md" {
				personAtNginx(t, p, client)
				if strings.Contains(out, "unknown proxy") {
					t.Errorf("doctor does not know the proxy:\n%s", out)
				}
			}
		})
	}
}

// strangerAtNginx tries to do something without a credential.
func strangerAtNginx(t *testing.T, p *process, client *http.Client) {
	t.Helper()
	called := atomic.Int64{}
	victim := testbed.ServeHTTP(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Add(1) }))
	var before struct{ Entries int64 }
	p.get("/ops/status", &before)
	public, _, _ := ed25519.GenerateKey(nil)
	register, err := json.Marshal(map[string]any{
		"name": "stranger", "tenant": "default", "key_algorithm": "Ed25519",
		"public_key": roster.EncodePublicKey(public),
		"delivery":   map[string]any{"webhook_url": victim},
	})
	if err != nil {
		t.Fatal(err)
	}
	mesh := map[string]string{"X-Forwarded-From": "host-b"}
	signal := `{"amp_version":"1.0","agent_id":"x","run_id":"r","status":"completed","summary":"s","gate_required":true}`
	message := `{"from":"a@default.signalbox.local","to":"b@default.signalbox.local","subject":"s","payload":{"type":"notification","message":"m"}}`
	for _, try := range []struct {
		call, body string
		header     map[string]string
	}{
		{"POST /v1/register", string(register), nil},
		{"POST /api/v1/register", string(register), nil},
		{"POST /v1/register", string(register), map[string]string{"Content-Type": "text/plain"}},
		{"POST /v1/register", string(register), map[string]string{"X-Forwarded-For": "127.0.0.1", "Host": "127.0.0.1"}},
		{"POST /amp/register", `{"agent_id":"x"}`, nil},
		{"POST /amp/signal", signal, nil},
		{"POST /amp/gate_request", signal, nil},
		{"POST /v1/route", message, nil},
		{"POST /v1/route", message, mesh},
		{"POST /v1/mesh/route", message, mesh},
		{"POST /v1/federation/deliver", message, nil},
		{"GET /metrics", "", nil},
		{"GET /ops/agents", "", nil},
		{"GET /ops/settings", "", nil},
	} {
		if status, answer, _ := through(t, client, try.call, try.body, try.header); status < 400 || status >= 500 {
			t.Errorf("%s %v: %d %s", try.call, try.header, status, answer)
		}
	}
	var wrote struct{ Entries []struct{ Kind string } }
	testbed.Until(t, "an entry that says that strangers were refused", func() bool {
		p.get(fmt.Sprintf("/ops/ledger?after=%d&limit=1000", before.Entries), &wrote)
		return len(wrote.Entries) > 0
	})
	for _, e := range wrote.Entries {
		if e.Kind != "call.refused" {
			t.Errorf("strangers wrote %s", e.Kind)
		}
	}
	if called.Load() != 0 {
		t.Error("a stranger had a program of this machine called")
	}
}

// personAtNginx signs in to the dashboard through nginx, as a browser does.
func personAtNginx(t *testing.T, p *process, client *http.Client) {
	t.Helper()
	login := strings.TrimSpace(mustRun(t, p.dir, "login"))
	at, err := url.Parse(login)
	if err != nil || at.Host != "box.example" || at.Scheme != "https" {
		t.Fatalf("login prints %s", login)
	}
	if status, page, header := through(t, client, "GET "+at.RequestURI(), "", nil); status != 200 ||
		!strings.Contains(page, at.Query().Get("code")) || header.Get("Strict-Transport-Security") != "max-age=31536000" {
		t.Errorf("the login page: %d %v", status, header)
	}
	form := map[string]string{"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://box.example"}
	body := url.Values{"code": {at.Query().Get("code")}}.Encode()
	if status, page, _ := through(t, client, "POST /ui/login/code", body, form); status != 200 ||
		!strings.Contains(page, "<h1>Inbox</h1>") {
		t.Errorf("the code does not sign in: %d %s", status, page)
	}
	if cookies := client.Jar.Cookies(&url.URL{Scheme: "http", Host: "box.example"}); len(cookies) != 0 {
		t.Errorf("a cookie goes out without TLS: %v", cookies)
	}
}
