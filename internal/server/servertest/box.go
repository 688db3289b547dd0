// Package servertest runs whole servers inside a test: on a free port, in a folder of
// their own, on either database. It knows as much of the API as every test needs: the
// operator's token, and how a call is made. Only tests import it.
package servertest

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/protocol"
	"signalbox/internal/server"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// Box is a server that runs until the end of the test, or until Stop. It is the real
// server with its real listener; only the log is dropped. Several can run at the same
// time.
type Box struct {
	T      testing.TB
	URL    string
	Config *server.Config
	Client *http.Client
	Stop   func() // may be called more than once
}

// Settings are the settings of a server in a temporary folder, on a free port and on
// SQLite, with more on top. A value of "db" that is not an address of PostgreSQL means
// SQLite in the folder, so that a test can pass on what storetest.Each gives it.
func Settings(t testing.TB, more map[string]string) map[string]string {
	t.Helper()
	all := map[string]string{"listen": "127.0.0.1:0"}
	maps.Copy(all, more)
	if all["data"] == "" {
		all["data"] = t.TempDir()
	}
	if !strings.HasPrefix(all["db"], "postgres") {
		all["db"] = ""
	}
	return all
}

// Load reads the Settings. The environment is left out: it must not change a test.
func Load(t testing.TB, settings map[string]string) *server.Config {
	t.Helper()
	config, err := server.Load(Settings(t, settings), nil, "")
	if err != nil {
		t.Fatal(err)
	}
	return config
}

// Start runs a server with the Settings and with more protocols than it has, and returns
// when it is ready.
func Start(t testing.TB, settings map[string]string, more ...protocol.Protocol) *Box {
	t.Helper()
	return Run(t, Load(t, settings), more...)
}

// Each runs fn with a server on every database.
func Each(t *testing.T, settings map[string]string, fn func(t *testing.T, b *Box)) {
	t.Helper()
	storetest.Each(t, func(t *testing.T, address string) {
		here := maps.Clone(settings)
		if here == nil {
			here = map[string]string{}
		}
		here["db"] = address
		fn(t, Start(t, here))
	})
}

// Run is Start with a configuration that was loaded before. The context of the server is
// not that of the test: Stop has to end it in order, also after the test has failed.
func Run(t testing.TB, config *server.Config, more ...protocol.Protocol) *Box {
	t.Helper()
	s, err := server.New(t.Context(), config, slog.New(slog.DiscardHandler), more...)
	if err != nil {
		t.Fatal(err)
	}
	b := &Box{
		T: t, Config: config,
		Client: &http.Client{Timeout: testbed.Patience, Transport: &http.Transport{MaxIdleConnsPerHost: 100}},
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(*server.Server) { close(ready) }) }()
	b.Stop = sync.OnceFunc(func() {
		cancel()
		if err := testbed.Receive(t, "the server to stop", done); err != nil {
			t.Error(err)
		}
		b.Client.CloseIdleConnections()
	})
	t.Cleanup(b.Stop)
	select {
	case <-ready:
	case err := <-done:
		done <- err
		t.Fatal(err)
	}
	if b.URL = s.URL(); config.PublicURL != "" { // which may lead nowhere in a test
		address, err := os.ReadFile(filepath.Join(config.Data, server.URLFile))
		if err != nil {
			t.Fatal(err)
		}
		b.URL = strings.TrimSpace(string(address))
	}
	return b
}

// Again runs a stopped server once more, with the same data and at the same address.
// Settings other than those are lost.
func (b *Box) Again() *Box {
	b.T.Helper()
	return Start(b.T, map[string]string{
		"data": b.Config.Data, "db": b.Config.DB.Reveal(),
		"listen": strings.Replace(strings.TrimPrefix(b.URL, "http://"), "localhost", "127.0.0.1", 1),
	})
}

// Token is that of the first operator.
func (b *Box) Token() string {
	b.T.Helper()
	text, err := os.ReadFile(filepath.Join(b.Config.Data, server.TokenFile))
	if err != nil {
		b.T.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// Request is one call: "METHOD /path", with a token, a body, the body's media type if it is not
// JSON, and more headers.
type Request struct {
	Call, Token, Body, Media string
	Header                   map[string]string
}

// Do makes a call and returns the answer, whatever its status is. Only a call without
// any answer ends the test.
func (b *Box) Do(r Request) (status int, answer string, header http.Header) {
	b.T.Helper()
	method, path, _ := strings.Cut(r.Call, " ")
	if r.Media == "" && r.Body != "" {
		r.Media = "application/json"
	}
	all := map[string]string{"Content-Type": r.Media}
	if r.Token != "" {
		all["Authorization"] = "Bearer " + r.Token
	}
	maps.Copy(all, r.Header)
	return testbed.Call(b.T, b.Client, method, b.URL+path, r.Body, all)
}

// Ops makes a call as the first operator, which has to have the status, and decodes the
// answer into what is not nil.
func (b *Box) Ops(want int, call, body string, into any) {
	b.T.Helper()
	status, answer, _ := b.Do(Request{Call: call, Token: b.Token(), Body: body})
	if status != want {
		b.T.Fatalf("%s: %d %s", call, status, answer)
	}
	if into != nil {
		if err := json.Unmarshal([]byte(answer), into); err != nil {
			b.T.Fatalf("%s: %v\n%s", call, err, answer)
		}
	}
}

// Agent adds an agent and returns its keys by kind.
func (b *Box) Agent(name string) map[string]string {
	b.T.Helper()
	var added struct{ Keys map[string]string }
	b.Ops(http.StatusCreated, "POST /ops/agents", `{"name":"`+name+`"}`, &added)
	return added.Keys
}
