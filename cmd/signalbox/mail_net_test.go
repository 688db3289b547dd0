package main

import (
	"bufio"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/address"
	"signalbox/internal/blob"
	"signalbox/internal/blob/blobtest"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/inspect/inspecttest"
	"signalbox/internal/roster"
	"signalbox/internal/testbed"
)

// upWith starts a server with a configuration of its mail, at an address that may be known
// before it starts.
func upWith(t *testing.T, dir, listen, mail string) *process {
	t.Helper()
	configure(t, dir, "mail: {"+mail+"}\n")
	return up(t, dir, "--listen", listen)
}

// provider is a stand-in for another implementation: it has a document, takes what is
// delivered, and can deliver.
type provider struct {
	URL     string
	domain  string
	private ed25519.PrivateKey
	got     chan delivery
	refusal atomic.Value // the text with which it refuses what is delivered, if there is one
}

// delivery is a call that the stand-in was made.
type delivery struct {
	header http.Header
	body   []byte
}

func newProvider(t *testing.T, domain string) *provider {
	t.Helper()
	_, private, _ := ed25519.GenerateKey(nil)
	s := &provider{domain: domain, private: private, got: make(chan delivery, 8)}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/agent-messaging.json", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"version": "AMP1", "endpoint": s.URL + "/v1", "provider": domain,
			"public_key": roster.EncodePublicKey(private.Public().(ed25519.PublicKey)),
		})
	})
	mux.HandleFunc("POST /v1/federation/deliver", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if text, refuses := s.refusal.Load().(string); refuses {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, text)
			return
		}
		s.got <- delivery{r.Header, body}
		_, _ = io.WriteString(w, `{"accepted":true}`)
	})
	s.URL = testbed.ServeHTTP(t, mux)
	return s
}

// deliver brings a server a message of an agent of the stand-in's.
func (s *provider) deliver(t *testing.T, p *process, to, text string) (status int, answer string) {
	t.Helper()
	public, agent, _ := ed25519.GenerateKey(nil)
	payload := fmt.Sprintf(`{"message":%q,"type":"request"}`, text)
	from := "zoe@theirs." + s.domain
	signature, err := amp.Signed{
		From: []string{from}, To: []string{to}, Subject: "Hi", Priority: "normal",
		Payload: []byte(payload),
	}.Sign(agent)
	if err != nil {
		t.Fatal(err)
	}
	envelope, _ := json.Marshal(map[string]string{
		"version": "amp/0.1", "id": "msg_1706648400_0a", "from": from, "to": to, "subject": "Hi", "priority": "normal",
		"timestamp": time.Now().UTC().Format(time.RFC3339), "signature": signature, "thread_id": "msg_1706648400_0a",
	})
	pem, _ := json.Marshal(roster.EncodePublicKey(public))
	body := fmt.Sprintf(`{"envelope": %s, "payload": %s, "sender_public_key": %s}`, envelope, payload, pem)
	at := strconv.FormatInt(time.Now().Unix(), 10)
	return post(t, p.url+"/v1/federation/deliver", body, map[string]string{
		"X-AMP-Provider": s.domain, "X-AMP-Timestamp": at,
		"X-AMP-Signature": base64.StdEncoding.EncodeToString(ed25519.Sign(s.private, []byte(at+"."+body))),
	})
}

// verify checks a delivery as another implementation would: by the key in the sender's
// document.
func (d delivery) verify(t *testing.T, from *process) bool {
	t.Helper()
	res, err := http.Get(from.url + "/.well-known/agent-messaging.json")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var doc struct {
		Key string `json:"public_key"`
	}
	if err := json.NewDecoder(res.Body).Decode(&doc); err != nil {
		t.Fatal(err)
	}
	key, err := roster.ParsePublicKey(doc.Key)
	if err != nil {
		t.Fatal(err)
	}
	signature, _ := base64.StdEncoding.DecodeString(d.header.Get("X-AMP-Signature"))
	return ed25519.Verify(key, append([]byte(d.header.Get("X-AMP-Timestamp")+"."), d.body...), signature)
}

// TestMailBetweenServers: two servers and a stand-in for a third provider, as processes.
func TestMailBetweenServers(t *testing.T) {
	t.Parallel()
	third := newProvider(t, "third.test")
	one, two := testbed.FreeAddress(t), testbed.FreeAddress(t)
	peers := "federation: allowlist, peers: [second.test=http://" + two + ", first.test=http://" + one + ", third.test=" +
		third.URL + "]"
	first := upWith(t, t.TempDir(), one, "provider: first.test, "+peers)
	second := upWith(t, t.TempDir(), two, "provider: second.test, "+peers)
	alice, bob := newMailer(t, first, "alice", ""), newMailer(t, second, "bob", "")
	alice.exchanges(t, bob, "alice@default.first.test", "bob@default.second.test", "federation")

	alice.sends(t, "zoe@theirs.third.test", "to another implementation")
	got := <-third.got
	if got.header.Get("X-AMP-Provider") != "first.test" ||
		!strings.Contains(string(got.body), "to another implementation") || !got.verify(t, first) {
		t.Errorf("%v %s", got.header, got.body)
	}
	if status, answer := third.deliver(t, first, "alice@default.first.test",
		"from another implementation"); status != http.StatusOK {
		t.Errorf("%d %s", status, answer)
	}
	alice.receives(t, "from another implementation", "zoe@theirs.third.test")
	if code, out := run(t, first.dir, "mail", "--dir", alice.dir, "send", "x@y.stranger.test", "s", "t"); code == 0 {
		t.Errorf("a provider that is not listed: %s", out)
	}
}

// TestTwoProvidersSurviveKills: whichever of two federated servers is killed, each message arrives, once. Meanwhile doctor
// and the page of deliveries say who is away, what waits and why.
func TestTwoProvidersSurviveKills(t *testing.T) {
	t.Parallel()
	domains := []string{"first.test", "second.test"}
	at, dirs := []string{testbed.FreeAddress(t), testbed.FreeAddress(t)}, []string{t.TempDir(), t.TempDir()}
	servers := make([]*process, 2)
	begin := func(i int) {
		servers[i] = upWith(t, dirs[i], at[i], fmt.Sprintf("provider: %s, federation: allowlist, peers: [%s=http://%s]",
			domains[i], domains[1-i], at[1-i]))
	}
	begin(0)
	begin(1)
	alice, bob := newMailer(t, servers[0], "alice", ""), newMailer(t, servers[1], "bob", "")
	const own, theirs = "alice@default.first.test", "bob@default.second.test"
	alice.exchanges(t, bob, own, theirs, "federation")

	servers[1].kill()
	if out := alice.sends(t, theirs, "while you are down"); !strings.Contains(out, "queued") {
		t.Errorf("%s", out)
	}
	servers[0].showsLink(t, "provider", "second.test", at[1])
	servers[0].kill() // with the message in its queue
	begin(1)
	begin(0)
	bob.receives(t, "while you are down", own)

	// In the midst of deliveries: each server is killed while it is sent to.
	for i, way := range []struct {
		from, with *mailer
		to         string
		had        int // letters
	}{{bob, alice, own, 1}, {alice, bob, theirs, 2}} {
		const each = 4
		var sender sync.WaitGroup
		sender.Go(func() {
			for n := range each {
				code, out := run(t, way.from.p.dir, "mail", "--dir", way.from.dir, "send", way.to, "Hello", fmt.Sprint("number ", n))
				if code != 0 {
					t.Errorf("%s", out)
				}
			}
		})
		servers[i].kill()
		begin(i)
		sender.Wait()
		testbed.Until(t, "all letters to "+way.to, func() bool {
			way.with.mail("fetch", "--wait", "5s")
			return len(way.with.letters(t)) >= way.had+each
		})
		if got := len(way.with.letters(t)); got != way.had+each {
			t.Errorf("%s got %d messages, and was sent %d", way.to, got, way.had+each)
		}
	}
	for _, dir := range dirs {
		if out := mustRun(t, dir, "ledger", "rebuild", "--check"); !strings.Contains(out, " 0 differences") {
			t.Errorf("rebuild --check: %s", out)
		}
	}
}

// showsLink looks at what doctor and the dashboard say of another server that is away, and for which a message waits.
func (p *process) showsLink(t *testing.T, kind, name, at string) {
	t.Helper()
	code, out := run(t, p.dir, "doctor")
	line := regexp.MustCompile(`(?m)^.*` + kind + " " + regexp.QuoteMeta(name) + `.*$`).FindString(out)
	for _, want := range []string{"BAD", "http://" + at, "1 waiting", "the last call failed: ", "refuses"} {
		if code == 0 || !strings.Contains(line, want) {
			t.Errorf("doctor, exit code %d, does not say %q of %s %s: %q\n%s", code, want, kind, name, line, out)
		}
	}
	_, page := p.signIn(t).open(p.url + address.Deliveries.At())
	_, row, _ := strings.Cut(page, `<tr data-key="`+kind+" "+name+`">`)
	row, _, _ = strings.Cut(row, "</tr>")
	for _, want := range []string{name, kind + " at http://" + at, `<td class="num">1<br>`, "refuses"} {
		if !strings.Contains(row, want) {
			t.Errorf("the page of deliveries does not say %q of %s %s: %s", want, kind, name, row)
		}
	}
}

// exchanges sends a message and gets an answer; way is how the first one goes.
func (m *mailer) exchanges(t *testing.T, with *mailer, own, theirs, way string) {
	t.Helper()
	if out := m.sends(t, theirs, "across processes"); !strings.Contains(out, way) {
		t.Errorf("%s", out)
	}
	with.receives(t, "across processes", own)
	with.sends(t, own, "and back")
	m.receives(t, "and back", theirs)
}

// sends sends until it succeeds: a provider that does not answer in time is not found, which is said.
func (m *mailer) sends(t *testing.T, to, text string) (out string) {
	t.Helper()
	testbed.Until(t, to+" is found", func() bool {
		var code int
		code, out = run(t, m.p.dir, "mail", "--dir", m.dir, "send", to, "Hello", text)
		return code == 0
	})
	return out
}

// receives fetches until a text has come, and looks at who it is from.
func (m *mailer) receives(t *testing.T, text, from string) {
	t.Helper()
	for deadline := time.Now().Add(testbed.Patience); ; {
		m.mail("fetch", "--wait", "1s")
		all := m.letters(t)
		for _, one := range all {
			if shown := m.mail("read", one.ID); one.From == from && strings.Contains(shown, text) {
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q does not come: %+v", text, all)
		}
	}
}

type letter struct{ ID, From string }

// letters is what the agent's inbox holds.
func (m *mailer) letters(t *testing.T) []letter {
	t.Helper()
	var all struct{ Messages []letter }
	if err := json.Unmarshal([]byte(m.mail("inbox", "--json", "--all")), &all); err != nil {
		t.Fatal(err)
	}
	return all.Messages
}

// TestMailBetweenHosts: two processes that serve one provider.
func TestMailBetweenHosts(t *testing.T) {
	t.Parallel()
	one, two := testbed.FreeAddress(t), testbed.FreeAddress(t)
	const secret = "0123456789abcdef"
	a := upWith(t, t.TempDir(), one, "mesh: {host: host-a, hosts: host-b=http://"+two+", secrets: host-b="+secret+"}")
	b := upWith(t, t.TempDir(), two, "mesh: {host: host-b, hosts: host-a=http://"+one+", secrets: host-a="+secret+"}")
	alice, bob := newMailer(t, a, "alice", ""), newMailer(t, b, "bob", "")
	alice.exchanges(t, bob, "alice@default.signalbox.local", "bob@default.signalbox.local", "mesh")
}

// TestAMeshOfThreeHostsSurvivesKills: names stay with their hosts and mail arrives, whichever process is killed.
func TestAMeshOfThreeHostsSurvivesKills(t *testing.T) {
	t.Parallel()
	names := []string{"host-a", "host-b", "host-c"}
	at, dirs, hosts := make([]string, 3), make([]string, 3), make([]*process, 3)
	for i := range names {
		at[i], dirs[i] = testbed.FreeAddress(t), t.TempDir()
	}
	begin := func(i int) {
		var others, secrets []string
		for j, name := range names {
			if j != i {
				others = append(others, name+"=http://"+at[j])
				secrets = append(secrets, fmt.Sprintf("%s=a-secret-of-the-hosts-%d-and-%d", name, min(i, j), max(i, j)))
			}
		}
		hosts[i] = upWith(t, dirs[i], at[i], fmt.Sprintf("mesh: {host: %s, hosts: [%s], secrets: [%s]}", names[i],
			strings.Join(others, ", "), strings.Join(secrets, ", ")))
	}
	for i := range names {
		begin(i)
	}
	taken := func(i int, name string) {
		t.Helper()
		if code, out := run(t, dirs[i], "mail", "--dir", filepath.Join(t.TempDir(), name), "register", name); code == 0 {
			t.Errorf("%s is registered on %s too: %s", name, names[i], out)
		}
	}
	alice, bob := newMailer(t, hosts[0], "alice", ""), newMailer(t, hosts[1], "bob", "")
	carol := newMailer(t, hosts[2], "carol", "")
	taken(1, "alice")
	taken(2, "bob")
	carol.exchanges(t, bob, "carol@default.signalbox.local", "bob@default.signalbox.local", "mesh")

	hosts[1].kill()
	taken(2, "bob") // it is known to have the name
	if out := carol.sends(t, "bob@default.signalbox.local", "while you are down"); !strings.Contains(out, "queued") {
		t.Errorf("%s", out)
	}
	hosts[2].showsLink(t, "host", "host-b", at[1])
	hosts[2].kill() // with the message in its queue
	begin(2)
	begin(1)
	bob.receives(t, "while you are down", "carol@default.signalbox.local")

	hosts[0].kill() // which keeps the names
	taken(2, "bob")
	newMailer(t, hosts[2], "dora", "")
	begin(0)
	testbed.Until(t, "the name to be claimed", func() bool {
		code, _ := run(t, dirs[0], "mail", "--dir", alice.dir, "send", "dora@default.signalbox.local", "Hello", "a new name")
		return code == 0
	})
	taken(0, "dora")
	taken(1, "dora")
	for _, dir := range dirs {
		if out := mustRun(t, dir, "ledger", "rebuild", "--check"); !strings.Contains(out, " 0 differences") {
			t.Errorf("rebuild --check: %s", out)
		}
	}
}

// TestAttachmentsInABucketAndScanned: with a real store and a real virus scanner.
func TestAttachmentsInABucketAndScanned(t *testing.T) {
	t.Parallel()
	s3, clam := blobtest.S3(t), inspecttest.Start(t, "")
	p := upWith(t, t.TempDir(), "127.0.0.1:0",
		fmt.Sprintf("s3: {endpoint: %q, bucket: %s, access_key: %s, secret_key: %s}, clamav: %q", s3.Endpoint, s3.Bucket,
			s3.AccessKey, s3.SecretKey.Reveal(), string(clam)))
	alice, bob := newMailer(t, p, "alice", ""), newMailer(t, p, "bob", "")
	good, bad := filepath.Join(t.TempDir(), "good.txt"), filepath.Join(t.TempDir(), "bad.txt")
	for path, text := range map[string]string{good: "all is well", bad: "before " + inspecttest.Virus + " after"} {
		testbed.Write(t, path, text)
	}
	alice.mail("send", "bob", "With a file", "see there", "--attach", good)
	if code, out := run(t, p.dir, "mail", "--dir", alice.dir, "send", "bob", "With a virus", "see there", "--attach",
		bad); code == 0 || !strings.Contains(out, "rejected bad.txt") {
		t.Errorf("a virus was sent: %s", out)
	}
	bucket, err := blob.OpenBucket(t.Context(), s3)
	if err != nil {
		t.Fatal(err)
	}
	names, err := bucket.Before(t.Context(), time.Now().Add(time.Hour))
	if err != nil || len(names) != 1 {
		t.Errorf("%v %v", names, err)
	}
	bob.mail("fetch")
	all := bob.letters(t)
	if len(all) != 1 {
		t.Fatal(all)
	}
	dest := t.TempDir()
	bob.mail("download", all[0].ID, "--all", "--dest", dest)
	if text := testbed.Read(t, filepath.Join(dest, "good.txt")); string(text) != "all is well" {
		t.Errorf("%q", text)
	}
}

// TestTheBusReachesMail: a component of an agent sends and gets mail through the gateway.
func TestTheBusReachesMail(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	alice, bob := newMailer(t, p, "alice", ""), newMailer(t, p, "bob", "")
	dir, err := os.MkdirTemp("", "bus") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "b", "bus.sock")
	bus := exec.CommandContext(t.Context(), binary, "mail", "--dir", alice.dir, "bus")
	bus.Env = append(cleanEnv(), "SIGNALBOX_DATA="+p.dir, "AMP_BUS_SOCKET="+socket)
	if err := bus.Start(); err != nil {
		t.Fatal(err)
	}
	conn := testbed.Dial(t, "unix", socket)
	_ = conn.SetDeadline(time.Now().Add(testbed.Patience))
	lines := bufio.NewScanner(conn)
	say := func(line, want string) string {
		t.Helper()
		_, _ = fmt.Fprintln(conn, line)
		for lines.Scan() {
			if strings.Contains(lines.Text(), want) {
				return lines.Text()
			}
			if strings.Contains(lines.Text(), `"error"`) {
				t.Fatal(lines.Text())
			}
		}
		t.Fatalf("%s does not come: %v", want, lines.Err())
		return ""
	}
	say(`{"jsonrpc":"2.0","method":"bus.register","params":{"name":"cortex"},"id":1}`, "registered")
	say(`{"jsonrpc":"2.0","method":"bus.subscribe","params":{"topic":"amp.inbound"},"id":2}`, "subscribed")
	say(`{"jsonrpc":"2.0","method":"amp.identity","id":3}`, "alice@default.signalbox.local")
	say(
		`{"jsonrpc":"2.0","method":"amp.send","params":{"to":"bob","subject":"Hi","payload":{"type":"request",`+
			`"message":"from a component"}},"id":4}`, `"id":"msg_`,
	)
	bob.receives(t, "from a component", "alice@default.signalbox.local")
	bob.mail("send", "alice", "Re", "for the components")
	got := say(`{"jsonrpc":"2.0","method":"bus.heartbeat"}`, `"topic":"amp.inbound"`)
	if !strings.Contains(got, "for the components") || !strings.Contains(got, `"trust_level":"verified"`) ||
		!strings.Contains(got, `"from":"gateway"`) {
		t.Error(got)
	}
	say(`{"jsonrpc":"2.0","method":"amp.inbox","params":{"status":"unread"},"id":5}`, `"count":1`)
	_ = bus.Process.Signal(syscall.SIGTERM)
	say(`{"jsonrpc":"2.0","method":"bus.heartbeat"}`, "bus.shutdown")
	say(`{"jsonrpc":"2.0","method":"bus.deregister","id":6}`, "deregistered")
	if err := bus.Wait(); err != nil {
		t.Error(err)
	}
}
