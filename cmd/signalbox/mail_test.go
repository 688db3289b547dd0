package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"signalbox/internal/roster"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// postman sends, fetches and acknowledges mail while servers are killed, and remembers
// what it was told.
type postman struct {
	t    *testing.T
	mu   sync.Mutex
	keys map[string]string

	tried    int
	accepted map[string]bool // ids of what was answered with 200
	fetched  map[string]int  // texts that the recipient has acknowledged
	acked    map[string]bool // ids whose acknowledgement was answered
}

func newPostman(t *testing.T) *postman {
	return &postman{
		t: t, keys: map[string]string{}, accepted: map[string]bool{}, fetched: map[string]int{},
		acked: map[string]bool{},
	}
}

// call makes a call as one of the two agents.
func (m *postman) call(p *process, as, method, path, body string) (int, string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	if key := m.keys[as]; key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

func (m *postman) register(p *process, name string) {
	m.t.Helper()
	public, _, _ := ed25519.GenerateKey(nil)
	body, _ := json.Marshal(map[string]string{
		"tenant": "acme", "name": name, "public_key": roster.EncodePublicKey(public),
		"key_algorithm": "Ed25519",
	})
	status, answer, err := m.call(p, "", "POST", "/v1/register", string(body))
	var out struct {
		Key string `json:"api_key"`
		ID  string `json:"agent_id"`
	}
	if err != nil || status != http.StatusCreated || json.Unmarshal([]byte(answer), &out) != nil {
		m.t.Fatalf("%d %s %v", status, answer, err)
	}
	m.keys[name] = out.Key
	if status, answer, err := p.call("PATCH", "/ops/agents/"+name+"?workspace=acme", `{"rate_limit":0}`); err != nil ||
		status != http.StatusOK {
		m.t.Fatalf("%d %s %v", status, answer, err)
	}
}

// more waits until so many more messages were accepted.
func (m *postman) more(n int) {
	m.t.Helper()
	count := func() int { m.mu.Lock(); defer m.mu.Unlock(); return len(m.accepted) }
	want := count() + n
	testbed.Until(m.t, "more mail to be accepted", func() bool { return count() >= want })
}

// work sends and fetches until stop is closed.
func (m *postman) work(p *process, stop <-chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range 4 {
		repeat(&wg, stop, func() { m.send(p) })
	}
	repeat(&wg, stop, func() { m.fetch(p) })
	return &wg
}

func (m *postman) send(p *process) {
	m.mu.Lock()
	m.tried++
	text := fmt.Sprintf("message number %d", m.tried)
	m.mu.Unlock()
	status, answer, err := m.call(p, "alice", "POST", "/v1/route",
		fmt.Sprintf(`{"to":"bob","subject":"s","payload":{"type":"request","message":%q}}`, text))
	var out struct{ ID string }
	if err == nil && status == http.StatusOK && json.Unmarshal([]byte(answer), &out) == nil {
		m.mu.Lock()
		m.accepted[out.ID] = true
		m.mu.Unlock()
	}
}

// fetch takes some mail out of the queue: what was acknowledged must not come again.
func (m *postman) fetch(p *process) (left int) {
	status, answer, err := m.call(p, "bob", "GET", "/v1/messages/pending?limit=20", "")
	if err != nil || status != http.StatusOK {
		return -1
	}
	var page struct {
		Messages []struct {
			ID      string
			Payload struct{ Message string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &page); err != nil {
		m.t.Errorf("%v: %.200s", err, answer)
		return -1
	}
	for _, one := range page.Messages {
		m.mu.Lock()
		if m.acked[one.ID] {
			m.t.Errorf("%s was acknowledged, and comes again", one.ID)
		}
		m.mu.Unlock()
		status, _, err := m.call(p, "bob", "DELETE", "/v1/messages/pending/"+one.ID, "")
		if err != nil || status != http.StatusOK {
			return -1 // it may have been done
		}
		m.mu.Lock()
		m.acked[one.ID] = true
		m.fetched[one.Payload.Message]++
		m.mu.Unlock()
	}
	return len(page.Messages)
}

// settle fetches the rest, and compares.
func (m *postman) settle(p *process) {
	m.t.Helper()
	testbed.Until(m.t, "the queue to become empty", func() bool { return m.fetch(p) == 0 })
	var all struct {
		Messages []struct{ ID, Status string }
		Next     string
	}
	there := map[string]bool{}
	for cursor := ""; ; cursor = all.Next {
		p.get("/ops/messages?limit=1000&cursor="+cursor, &all)
		for _, one := range all.Messages {
			if one.Status != "acknowledged" {
				m.t.Errorf("%s is %s", one.ID, one.Status)
			}
			there[one.ID] = true
		}
		if all.Next == "" {
			break
		}
	}
	for id := range m.accepted {
		if !there[id] {
			m.t.Errorf("%s was accepted, and is not there", id)
		}
	}
	// What the recipient saw may lack those whose acknowledgement was done and its answer
	// lost; it never has one twice.
	for text, n := range m.fetched {
		if n != 1 {
			m.t.Errorf("%q was handed over %d times", text, n)
		}
	}
	if len(m.accepted) == 0 || len(m.fetched) == 0 {
		m.t.Error("nothing was sent; the test shows nothing")
	}
	m.t.Logf("%d accepted of %d tried, %d handed over", len(m.accepted), m.tried, len(m.fetched))
}

func TestNoMailIsLostWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m := newPostman(t)
	for round := range 12 {
		p := up(t, dir)
		if round == 0 {
			m.register(p, "alice")
			m.register(p, "bob")
		}
		stop := make(chan struct{})
		working := m.work(p, stop)
		m.more(rand.IntN(150))
		p.kill()
		close(stop)
		working.Wait()
	}
	p := up(t, dir)
	m.settle(p)
	if out := mustRun(t, p.dir, "ledger", "rebuild", "--check"); !strings.Contains(out, " 0 differences") {
		t.Errorf("rebuild --check: %s", out)
	}
}

func TestNoMailIsLostWhenPostgreSQLIsKilled(t *testing.T) {
	t.Parallel()
	cluster := storetest.NewCluster(t)
	dir := t.TempDir()
	m := newPostman(t)
	p := up(t, dir, "--db", cluster.Address)
	m.register(p, "alice")
	m.register(p, "bob")
	for round := range 4 {
		stop := make(chan struct{})
		working := m.work(p, stop)
		m.more(1 + rand.IntN(150))
		if round%2 == 1 {
			p.kill()
		}
		cluster.Kill()
		close(stop)
		working.Wait()
		cluster.Start(t)
		if round%2 == 1 {
			p = up(t, dir, "--db", cluster.Address)
		} else {
			waitReady(t, p)
		}
	}
	m.settle(p)
	if out := mustRun(t, p.dir, "ledger", "rebuild", "--check", "--db", cluster.Address); !strings.Contains(out,
		" 0 differences") {
		t.Errorf("rebuild --check: %s", out)
	}
}

// TestAShellClientDoesEverything runs a client of curl, jq and openssl against the server.
func TestAShellClientDoesEverything(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "jq", "openssl"} {
		testbed.Program(t, program)
	}
	p := up(t, t.TempDir())
	out, err := exec.CommandContext(t.Context(), "bash", "testdata/mail.sh", p.url).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "all done") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMailThatDoesNotArriveSaysSo: what fails for good has exit code 1 and its reason at once, in text, as JSON and over
// MCP; what is rejected later is told by every command that shows sent mail.
func TestMailThatDoesNotArriveSaysSo(t *testing.T) {
	t.Parallel()
	third, dir := newProvider(t, "third.test"), t.TempDir()
	third.refusal.Store(`{"accepted":false,"error":"recipient_not_allowed","message":"Zoe takes no mail."}`)
	configure(t, dir, "mail: {provider: first.test, federation: allowlist, peers: [third.test="+third.URL+"]}\n")
	p := up(t, dir)
	alice, bob := newMailer(t, p, "alice", ""), newMailer(t, p, "bob", "")
	of := func(args ...string) (int, string) {
		return run(t, dir, append([]string{"mail", "--dir", alice.dir}, args...)...)
	}
	const zoe = "zoe@theirs.third.test"

	if code, out := of("send", zoe, "Hello", "text"); code != 1 || !strings.Contains(out, "Zoe takes no mail.") ||
		strings.Contains(out, "delivered") {
		t.Errorf("%d %s", code, out)
	}
	code, out := of("send", zoe, "Hello", "json", "--json")
	var failed struct{ ID, Status, Error string }
	if err := json.NewDecoder(strings.NewReader(out)).Decode(&failed); err != nil || code != 1 || failed.Status != "failed" ||
		!strings.Contains(failed.Error, "Zoe takes no mail.") {
		t.Errorf("%d %s %v", code, out, err)
	}
	session, err := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil).Connect(t.Context(),
		&sdk.StreamableClientTransport{
			Endpoint: p.url + "/mcp", DisableStandaloneSSE: true,
			HTTPClient: &http.Client{Transport: bearer{func() string { key, _, _ := alice.identity(); return key }()}},
		}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	for to, want := range map[string]string{zoe: "failed", "bob": "queued"} {
		said, err := session.CallTool(t.Context(), &sdk.CallToolParams{
			Name: "mail_send", Arguments: map[string]any{"to": to, "subject": "Hello", "message": "from a model"},
		})
		if err != nil {
			t.Fatal(err)
		}
		text := said.Content[0].(*sdk.TextContent).Text
		if said.IsError != (want == "failed") || !strings.Contains(text, `"status":"`+want+`"`) ||
			said.IsError && !strings.Contains(text, "Zoe takes no mail.") {
			t.Errorf("%s: %v %s", to, said.IsError, text)
		}
	}

	// Held, and rejected after its sender has its answer.
	mustRun(t, dir, "policy", "apply", writeFile(t, "version: 1\nrules: [{name: look, on: [message], then: gate}]\n"))
	var held struct {
		ID   string
		Gate string `json:"gate_id"`
	}
	if err := json.Unmarshal([]byte(alice.mail("send", "bob", "Hello", "look at it", "--json")), &held); err != nil {
		t.Fatal(err)
	}
	shown := func() (status, reason string) {
		t.Helper()
		var list struct {
			Messages []struct{ ID, Status, Error string }
		}
		if err := json.Unmarshal([]byte(alice.mail("inbox", "--sent", "--json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, one := range list.Messages {
			if one.ID == held.ID {
				status, reason = one.Status, one.Error
			}
		}
		return status, reason
	}
	if status, _ := shown(); status != "held" {
		t.Errorf("%q", status)
	}
	if out := alice.mail("read", "--sent", held.ID); !strings.Contains(out, "held") {
		t.Error(out)
	}
	mustRun(t, dir, "gates", "reject", held.Gate, "--note", "not to Bob")
	if code, out := of("fetch"); code != 0 || !strings.Contains(out, "was rejected: not to Bob") {
		t.Errorf("%d %s", code, out)
	}
	if status, reason := shown(); status != "rejected" || reason != "not to Bob" {
		t.Errorf("%q %q", status, reason)
	}
	if code, out := of("read", "--sent", held.ID); code != 1 || !strings.Contains(out, "not to Bob") ||
		!strings.Contains(out, "rejected") {
		t.Errorf("%d %s", code, out)
	}
	if all := bob.letters(t); len(all) != 0 {
		t.Errorf("%v", all)
	}
	if code, out := of("inbox", "--sent"); code != 0 || !strings.Contains(out, fmt.Sprintf("%s to bob@default.first.test was rejected", held.ID)) {
		t.Errorf("%d %s", code, out)
	}
}
