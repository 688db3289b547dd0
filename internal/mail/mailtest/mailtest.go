// Package mailtest starts a node with mail for the tests of mail and of the packages below it: the
// core, its routes over HTTP, agents that sign, and a clock that tests can move. It signs and calls
// by hand, from what the protocol says, and does not use the code that it tests.
package mailtest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/mail"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/protocol"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Node is a node with mail that serves its routes. Several nodes over one database are several
// processes of one server. It ends with the test, or with Stop.
type Node struct {
	*protocoltest.Node
	Mail  *mail.Mail
	Web   *httptest.Server
	Blobs string // the folder of attachments
	// Stop ends the node as a stop of the server does. It may be called twice; the database stays,
	// so that a test can start another node on it.
	Stop func()
}

// Start starts a node on the database at the address, with changed options and without rate limits.
func Start(t testing.TB, address string, options ...func(*mail.Options)) *Node {
	t.Helper()
	// Tests send more than 60 messages a minute.
	none := int64(0)
	return StartLimited(t, address, &none, options...)
}

// StartLimited starts a node with rate limits; nil is those of the protocol.
//
// Two nodes with different domains are two providers; with the same domain and other databases, two hosts.
func StartLimited(t testing.TB, address string, perAgent *int64, options ...func(*mail.Options)) *Node {
	t.Helper()
	return start(t, address, "", perAgent, nil, options...)
}

// StartUnpolled is Start for a node whose outbox never looks for deliveries by itself: it makes those that it is told of.
func StartUnpolled(t testing.TB, address string, options ...func(*mail.Options)) *Node {
	t.Helper()
	none := int64(0)
	return start(t, address, "", &none, func(o *deliver.Options) { o.Poll = time.Hour }, options...)
}

// StartAt is Start for a node that serves at a host and port which others know before it is there.
func StartAt(t testing.TB, address, at string, options ...func(*mail.Options)) *Node {
	t.Helper()
	none := int64(0)
	return start(t, address, at, &none, nil, options...)
}

func start(
	t testing.TB, address, at string, perAgent *int64, outbox func(*deliver.Options), options ...func(*mail.Options),
) *Node {
	t.Helper()
	o := mail.Options{
		Domains: amp.Domains{Own: "signalbox.local", Aliases: []string{"aimaestro.local"}}, Registration: directory.Open,
		Keep: 30 * 24 * time.Hour,
	}
	for _, option := range options {
		option(&o)
	}
	// Its address is needed before its handler exists: it is the base URL of the core.
	web := httptest.NewUnstartedServer(nil)
	if at != "" {
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		_ = web.Listener.Close()
		web.Listener = listener
	}
	n := &Node{Blobs: t.TempDir(), Web: web, Node: protocoltest.New(t, address, protocoltest.On{
		Protocol: mail.Protocol(),
		Core: func(c *protocol.Core) { // a key for each domain, so that two providers differ
			c.Key, c.BaseURL = []byte(strings.Repeat(o.Domains.Own[:1], 32)), "http://"+web.Listener.Addr().String()
		},
		Roster: func(r *roster.Options) { r.Provider, r.PerAgent = o.Domains.Own, func() *int64 { return perAgent } },
		Outbox: func(d *deliver.Options) {
			// Failed calls are repeated within milliseconds.
			d.Timeout, d.Lease, d.Pauses = 10*time.Second, 20*time.Second, []time.Duration{time.Millisecond}
			if outbox != nil {
				outbox(d)
			}
		},
	})}
	blobs, err := blob.Open(n.Blobs)
	if err != nil {
		t.Fatal(err)
	}
	o.Blobs = blobs
	n.Mail = mail.New(n.Core, o)
	ctx, cancel := context.WithCancel(context.Background())
	// ctx ends long polls and sockets when the node stops, before the server waits for them.
	web.Config.Handler = n.handler(ctx)
	n.Start(n.Mail)
	web.Start() // as a server does: a call before the policy is in force would be refused for good
	n.Stop = sync.OnceFunc(func() { cancel(); n.Web.Close(); n.Node.Stop() })
	t.Cleanup(n.Stop)
	return n
}

// StartBehind starts a further node on a database whose mail is run by what of makes of it, such as one that does not
// follow the ledger. It serves nothing.
func StartBehind[S protocol.Service](t testing.TB, address string, of func(*mail.Mail) S) *mail.Mail {
	t.Helper()
	none := int64(0)
	n := protocoltest.New(t, address, protocoltest.On{
		Protocol: mail.Protocol(),
		Roster:   func(r *roster.Options) { r.PerAgent = func() *int64 { return &none } },
	})
	m := mail.New(n.Core, mail.Options{Domains: amp.Domains{Own: "signalbox.local"}, Registration: directory.Open, Keep: -1})
	n.Start(of(m))
	return m
}

// handler serves the routes and identifies callers as package server does, without its roles and
// limits.
func (n *Node) handler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	for _, route := range n.Mail.Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			// As package server does for every request.
			ctx := wire.WithStop(r.Context(), stopping)
			tell := wire.Fail
			if route.Fail != nil {
				tell = route.Fail
			}
			if route.Auth != wire.Public {
				who, err := n.Roster.Authenticate(ctx, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
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
		// Any prefix works here too (MSG-1).
		r.URL.Path = federation.RequestPath(r)
		mux.ServeHTTP(w, r)
	})
}

// Call makes a call, given as "METHOD /path", and decodes the answer unless into is nil.
func (n *Node) Call(key, line, body string, into any) (status int, answer string) {
	n.T.Helper()
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(context.Background(), method, n.Web.URL+path, strings.NewReader(body))
	if err != nil {
		n.T.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	if key == "" {
		req.Header.Del("Authorization")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		n.T.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	var text bytes.Buffer
	if _, err := text.ReadFrom(res.Body); err != nil {
		n.T.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text.Bytes(), into); err != nil {
			n.T.Fatalf("%s: %v: %s", line, err, text.String())
		}
	}
	return res.StatusCode, text.String()
}

// Want is Call, and fails the test if the status is another.
func (n *Node) Want(status int, key, line, body string, into any) {
	n.T.Helper()
	if got, answer := n.Call(key, line, body, into); got != status {
		n.T.Fatalf("%s %.200s: %d, want %d: %s", line, body, got, status, answer)
	}
}

// Agent is a registered agent with its keys.
type Agent struct {
	*Node
	directory.Registered
	Private ed25519.PrivateKey
}

// Registration is the body of a registration; more is further members, with a comma before them.
func Registration(name, tenant string, private ed25519.PrivateKey, more string) string {
	pem, _ := json.Marshal(roster.EncodePublicKey(private.Public().(ed25519.PublicKey)))
	return fmt.Sprintf(`{"name":%q,"tenant":%q,"public_key":%s,"key_algorithm":"Ed25519"%s}`, name, tenant, pem, more)
}

// Register registers an agent with a new pair of keys.
func (n *Node) Register(name, tenant string) *Agent {
	n.T.Helper()
	_, private, _ := ed25519.GenerateKey(nil)
	a := &Agent{Node: n, Private: private}
	n.Want(201, "", "POST /v1/register", Registration(name, tenant, private, ""), &a.Registered)
	return a
}

// Who is the agent as the roster identifies it now, by its API key.
func (a *Agent) Who() roster.Identity {
	a.T.Helper()
	// Asked again every time: tests suspend agents and rotate keys.
	who, err := a.Roster.Authenticate(context.Background(), a.APIKey)
	if err != nil {
		a.T.Fatal(err)
	}
	return who
}

// RotateKey gives the agent a new pair of keys, with a proof of the old one.
func (a *Agent) RotateKey() {
	a.T.Helper()
	_, fresh, _ := ed25519.GenerateKey(nil)
	// The proof signs the PEM text as it is sent, as generation B does (MSG-21).
	pem := roster.EncodePublicKey(fresh.Public().(ed25519.PublicKey))
	text, _ := json.Marshal(map[string]string{
		"new_public_key": pem,
		"proof":          base64.StdEncoding.EncodeToString(ed25519.Sign(a.Private, []byte(pem))),
	})
	a.Want(200, a.APIKey, "POST /v1/auth/rotate-keys", string(text), nil)
	a.Private = fresh
}

// Demand is the body with which the agent demands signatures from itself, signed with a key.
func (a *Agent) Demand(key ed25519.PrivateKey) string {
	at := a.Now().Unix()
	proof := ed25519.Sign(key, fmt.Appendf(nil, "amp-require-signature\n%s\n%d", a.Address, at))
	return fmt.Sprintf(`{"require_signature":true,"proof":%q,"proof_timestamp":%d}`,
		base64.StdEncoding.EncodeToString(proof), at)
}

// SignText signs a message whose payload is canonical already, by hand.
func SignText(key ed25519.PrivateKey, from, to, subject, payload string) string {
	sum := sha256.Sum256([]byte(payload))
	text := strings.Join([]string{from, to, subject, "normal", "", base64.StdEncoding.EncodeToString(sum[:])}, "|")
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// Letter is the body of a signed message; more is further members, with a comma before them.
func (a *Agent) Letter(to, subject, message, more string) []byte {
	// Sorted and without white space: canonical as it stands. %q is JSON for plain ASCII.
	payload := fmt.Sprintf(`{"message":%q,"type":"request"}`, message)
	signature := SignText(a.Private, a.Address, to, subject, payload)
	return fmt.Appendf(nil, `{"to":%q,"subject":%q,"payload":%s,"signature":%q%s}`, to, subject, payload, signature, more)
}

// Send sends a signed message, which must be accepted.
func (a *Agent) Send(to, subject, message string) mail.Answer {
	a.T.Helper()
	// Not over HTTP: most tests are about what happens after that.
	out, err := a.Mail.Route(context.Background(), a.Who(), a.Letter(to, subject, message, ""))
	if err != nil {
		a.T.Fatal(err)
	}
	return out
}

// Got is a message as a poll returns it.
type Got struct {
	ID       string
	Envelope amp.Envelope
	Payload  struct{ Message string }
	Local    struct{ Security mail.Security }
}

// Mailbox polls the agent's queue, oldest first, without acknowledging.
//
// Over HTTP, so that the payload is what a client sees.
func (a *Agent) Mailbox() []Got {
	a.T.Helper()
	var page struct{ Messages []Got }
	a.Want(200, a.APIKey, "GET /v1/messages/pending", "", &page)
	return page.Messages
}

// Inbox is the ids of the messages in the agent's queue.
func (a *Agent) Inbox() (ids []string) {
	a.T.Helper()
	for _, m := range a.Mailbox() {
		ids = append(ids, m.ID)
	}
	return ids
}

// Ack acknowledges a message, which must be in the queue.
func (a *Agent) Ack(id string) {
	a.T.Helper()
	a.Want(200, a.APIKey, "DELETE /v1/messages/pending/"+id, "", nil)
}

// Operator adds an operator of all workspaces, with a token.
func (n *Node) Operator(name string) (key string, who roster.Identity) {
	n.T.Helper()
	_, token, err := n.Roster.AddOperator(context.Background(), roster.Identity{Role: roster.Admin}, name, "operator", "")
	if err != nil {
		n.T.Fatal(err)
	}
	if who, err = n.Roster.Authenticate(context.Background(), token.Secret); err != nil {
		n.T.Fatal(err)
	}
	return token.Secret, who
}

// Open opens a workspace to the agents of others, and to nobody else.
func (n *Node) Open(workspace string, others ...string) {
	n.T.Helper()
	_, err := n.Roster.ChangeWorkspace(n.T.Context(), roster.Identity{}, workspace, roster.WorkspaceChange{OpenTo: &others})
	if err != nil {
		n.T.Fatal(err)
	}
}

// Shown is a message as an operator of all workspaces sees it.
func (n *Node) Shown(id string) mail.Summary {
	n.T.Helper()
	s, err := n.Mail.Message(context.Background(), id)
	if err != nil {
		n.T.Fatal(err)
	}
	return s.Summary
}

// Code is the code of an error, "" for none.
//
// It compares errors of direct calls with the codes that clients get.
func Code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}
