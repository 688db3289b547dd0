package mail_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/blob"
	"github.com/signalbox/signalbox/internal/clock"
	"github.com/signalbox/signalbox/internal/deliver"
	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/gate"
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/mail"
	"github.com/signalbox/signalbox/internal/mail/amp"
	"github.com/signalbox/signalbox/internal/policy"
	"github.com/signalbox/signalbox/internal/roster"
	"github.com/signalbox/signalbox/internal/rulebook"
	"github.com/signalbox/signalbox/internal/store"
	"github.com/signalbox/signalbox/internal/store/storetest"
	"github.com/signalbox/signalbox/internal/wire"
)

func sets() []store.Migrations {
	return []store.Migrations{ledger.Migrations, clock.Migrations, roster.Migrations, rulebook.Migrations, gate.Migrations, deliver.Migrations, mail.Migrations}
}

func projections() []ledger.Projection {
	return []ledger.Projection{clock.Projection(), roster.Projection(), rulebook.Projection(), gate.Projection(), deliver.Projection(), mail.Projection()}
}

// node is a process that routes mail, with everything it needs. It serves its routes.
type node struct {
	t      testing.TB
	db     *store.DB
	ledger *ledger.Ledger
	roster *roster.Roster
	book   *rulebook.Book
	gates  *gate.Gates
	outbox *deliver.Outbox
	mail   *mail.Mail
	web    *httptest.Server
	blobs  string // the folder of attachments
	offset atomic.Int64
	stop   func()
}

func (n *node) now() time.Time       { return time.Now().Add(time.Duration(n.offset.Load())) }
func (n *node) move(d time.Duration) { n.offset.Add(int64(d)) }

// start starts a node on the database, with what options change and no limits.
func start(t testing.TB, address string, options ...func(*mail.Options)) *node {
	t.Helper()
	none := int64(0)
	return startLimited(t, address, &none, options...)
}

// startLimited starts a node with limits: the protocol's own for nil.
func startLimited(t testing.TB, address string, perAgent *int64, options ...func(*mail.Options)) *node {
	t.Helper()
	n := &node{t: t, db: storetest.Open(t, address, sets()...)}
	log := slog.New(slog.DiscardHandler)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	n.ledger, err = ledger.Open(t.Context(), ledger.Options{DB: n.db, Dir: t.TempDir(), Origin: "test.example/mail", Now: n.now, Projections: projections()})
	must(err)
	o := mail.Options{
		Domains: amp.Domains{Own: "signalbox.local", Aliases: []string{"aimaestro.local"}}, Registration: mail.Open, Keep: 30 * 24 * time.Hour,
		Key: []byte(strings.Repeat("k", 32)), Now: n.now, Log: log,
	}
	for _, option := range options {
		option(&o)
	}
	n.roster = roster.New(roster.Options{DB: n.db, Ledger: n.ledger, Now: n.now, Log: log, Provider: o.Domains.Own, PerAgent: perAgent})
	readers := gate.Readers()
	maps.Copy(readers, mail.Readers())
	n.book = rulebook.New(n.db, n.ledger, n.roster, n.now, log, readers)
	n.gates = gate.New(n.db, n.ledger, n.roster, log)
	n.outbox, err = deliver.New(deliver.Options{
		DB: n.db, Ledger: n.ledger, Key: o.Key, Allow: []string{"127.0.0.0/8"}, Now: n.now,
		Timeout: time.Second, Poll: 10 * time.Millisecond, Grace: 50 * time.Millisecond, Lease: 2 * time.Second, Pauses: []time.Duration{time.Millisecond},
	})
	must(err)
	n.blobs = t.TempDir()
	blobs, err := blob.Open(n.blobs)
	must(err)
	o.DB, o.Ledger, o.Book, o.Gates, o.Outbox, o.Roster, o.Blobs = n.db, n.ledger, n.book, n.gates, n.outbox, n.roster, blobs
	n.mail = mail.New(o)
	ctx, cancel := context.WithCancel(context.Background())
	n.web = httptest.NewServer(n.handler(ctx))
	n.mail.BaseURL = n.web.URL
	timers := clock.New(n.db, n.ledger, n.now, log, n.gates.Handlers())

	core, stopCore := context.WithCancel(context.Background())
	var wg, users sync.WaitGroup
	wg.Go(func() { _ = n.ledger.Run(core) })
	for _, run := range []func(context.Context) error{n.roster.Run, n.book.Run, n.gates.Run, timers.Run, n.outbox.Run, n.mail.Run} {
		users.Go(func() { _ = run(ctx) })
	}
	n.stop = sync.OnceFunc(func() { cancel(); n.web.Close(); users.Wait(); stopCore(); wg.Wait() })
	t.Cleanup(n.stop)
	must(n.roster.Bootstrap(t.Context()))
	must(n.book.Bootstrap(t.Context()))
	return n
}

// handler serves the routes, with who is asking found out as the server does it.
func (n *node) handler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	for _, route := range n.mail.Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			ctx := wire.WithStop(r.Context(), stopping)
			tell := wire.Fail
			if route.Fail != nil {
				tell = route.Fail
			}
			if route.Auth != wire.Public {
				who, err := n.roster.Authenticate(ctx, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
				if err != nil {
					tell(w, err)
					return
				}
				ctx = wire.WithScope(roster.With(ctx, who), who.Workspace)
			}
			if err := route.Handle(w, r.WithContext(ctx)); err != nil {
				tell(w, err)
			}
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = mail.RequestPath(r)
		mux.ServeHTTP(w, r)
	})
}

// call makes a call and decodes the answer.
func (n *node) call(key, line, body string, into any) (status int, answer string) {
	n.t.Helper()
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(context.Background(), method, n.web.URL+path, strings.NewReader(body))
	if err != nil {
		n.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if key == "" {
		req.Header.Del("Authorization")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		n.t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		n.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text.Bytes(), into); err != nil {
			n.t.Fatalf("%s: %v: %s", line, err, text.String())
		}
	}
	return res.StatusCode, text.String()
}

// want makes a call that should be answered with the status.
func (n *node) want(status int, key, line, body string, into any) {
	n.t.Helper()
	if got, answer := n.call(key, line, body, into); got != status {
		n.t.Fatalf("%s %.200s: %d, want %d: %s", line, body, got, status, answer)
	}
}

// agent is one that is registered.
type agent struct {
	*node
	mail.Registered
	private ed25519.PrivateKey
}

func registration(name, tenant string, private ed25519.PrivateKey, more string) string {
	pem, _ := json.Marshal(roster.EncodePublicKey(private.Public().(ed25519.PublicKey)))
	return fmt.Sprintf(`{"name":%q,"tenant":%q,"public_key":%s,"key_algorithm":"Ed25519"%s}`, name, tenant, pem, more)
}

func (n *node) register(name, tenant string) *agent {
	n.t.Helper()
	_, private, _ := ed25519.GenerateKey(nil)
	a := &agent{node: n, private: private}
	n.want(201, "", "POST /v1/register", registration(name, tenant, private, ""), &a.Registered)
	return a
}

func (a *agent) who() roster.Identity {
	a.t.Helper()
	who, err := a.roster.Authenticate(context.Background(), a.APIKey)
	if err != nil {
		a.t.Fatal(err)
	}
	return who
}

// signText signs a message whose payload is canonical as it stands.
func signText(key ed25519.PrivateKey, from, to, subject, payload string) string {
	sum := sha256.Sum256([]byte(payload))
	text := strings.Join([]string{from, to, subject, "normal", "", base64.StdEncoding.EncodeToString(sum[:])}, "|")
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// letter is a signed message.
func (a *agent) letter(to, subject, message, more string) []byte {
	payload := fmt.Sprintf(`{"message":%q,"type":"request"}`, message)
	signature := signText(a.private, a.Address, to, subject, payload)
	return fmt.Appendf(nil, `{"to":%q,"subject":%q,"payload":%s,"signature":%q%s}`, to, subject, payload, signature, more)
}

// send sends a message that should be taken.
func (a *agent) send(to, subject, message string) mail.Answer {
	a.t.Helper()
	out, err := a.mail.Route(context.Background(), a.who(), a.letter(to, subject, message, ""))
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

// inbox is the ids of what waits for the agent, the oldest first.
func (a *agent) inbox() (ids []string) {
	a.t.Helper()
	var page struct{ Messages []struct{ ID string } }
	a.want(200, a.APIKey, "GET /v1/messages/pending", "", &page)
	for _, m := range page.Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

func (a *agent) ack(id string) {
	a.t.Helper()
	a.want(200, a.APIKey, "DELETE /v1/messages/pending/"+id, "", nil)
}

func (n *node) operator(name string) (key string, who roster.Identity) {
	n.t.Helper()
	_, token, err := n.roster.AddOperator(context.Background(), roster.Identity{Role: roster.Admin}, name, "operator", "")
	if err != nil {
		n.t.Fatal(err)
	}
	if who, err = n.roster.Authenticate(context.Background(), token.Secret); err != nil {
		n.t.Fatal(err)
	}
	return token.Secret, who
}

// apply puts a policy in force, that of a new server for "".
func (n *node) apply(rules string) {
	n.t.Helper()
	text := policy.Default()
	if rules != "" {
		text = []byte("version: 1\n" + rules)
	}
	if _, _, err := n.book.Apply(context.Background(), roster.Identity{}, text, 0); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) shown(id string) mail.Summary {
	n.t.Helper()
	s, err := n.mail.Message(context.Background(), id)
	if err != nil {
		n.t.Fatal(err)
	}
	return s
}

func (n *node) wantClean() {
	n.t.Helper()
	got, err := ledger.CheckRebuild(context.Background(), n.db, sets(), projections(), nil)
	if err != nil || len(got.Differences) != 0 {
		n.t.Errorf("%+v %v", got, err)
	}
}

func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}

const patience = 15 * time.Second

// until waits for something that the code under test does on its own.
func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	for begun := time.Now(); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
