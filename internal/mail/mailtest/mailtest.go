// Package mailtest starts a process that routes mail, for the tests of mail and of its parts:
// the core with mail on it, its routes served, agents that sign, and a clock that tests can
// move. It knows nothing that the protocol does not say.
package mailtest

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
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
	"signalbox/internal/protocol"
	"signalbox/internal/protocol/protocoltest"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Node is a process that routes mail, with everything it needs. It serves its routes.
type Node struct {
	*protocoltest.Node
	Mail  *mail.Mail
	Web   *httptest.Server
	Blobs string // the folder of attachments
	Stop  func()
}

// Start starts a node on the database, with what options change and no limits.
func Start(t testing.TB, address string, options ...func(*mail.Options)) *Node {
	t.Helper()
	none := int64(0)
	return StartLimited(t, address, &none, options...)
}

// StartLimited starts a node with limits: the protocol's own for nil.
func StartLimited(t testing.TB, address string, perAgent *int64, options ...func(*mail.Options)) *Node {
	t.Helper()
	o := mail.Options{
		Domains: amp.Domains{Own: "signalbox.local", Aliases: []string{"aimaestro.local"}}, Registration: directory.Open,
		Keep: 30 * 24 * time.Hour,
	}
	for _, option := range options {
		option(&o)
	}
	web := httptest.NewUnstartedServer(nil)
	n := &Node{Blobs: t.TempDir(), Web: web, Node: protocoltest.New(t, address, protocoltest.On{
		Protocol: mail.Protocol(),
		Core: func(c *protocol.Core) { // each provider has a key of its own
			c.Key, c.BaseURL = []byte(strings.Repeat(o.Domains.Own[:1], 32)), "http://"+web.Listener.Addr().String()
		},
		Roster: func(r *roster.Options) { r.Provider, r.PerAgent = o.Domains.Own, perAgent },
		Outbox: func(d *deliver.Options) {
			d.Timeout, d.Lease, d.Pauses = time.Second, 2*time.Second, []time.Duration{time.Millisecond}
		},
	})}
	blobs, err := blob.Open(n.Blobs)
	if err != nil {
		t.Fatal(err)
	}
	o.Blobs = blobs
	n.Mail = mail.New(n.Core, o)
	ctx, cancel := context.WithCancel(context.Background())
	web.Config.Handler = n.handler(ctx)
	web.Start()
	n.Start(n.Mail)
	n.Stop = sync.OnceFunc(func() { cancel(); n.Web.Close(); n.Node.Stop() })
	t.Cleanup(n.Stop)
	return n
}

// handler serves the routes, with who is asking found out as the server does it.
func (n *Node) handler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	for _, route := range n.Mail.Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
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
		r.URL.Path = mail.RequestPath(r)
		mux.ServeHTTP(w, r)
	})
}

// Call makes a call and decodes the answer.
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

// Want makes a call that should be answered with the status.
func (n *Node) Want(status int, key, line, body string, into any) {
	n.T.Helper()
	if got, answer := n.Call(key, line, body, into); got != status {
		n.T.Fatalf("%s %.200s: %d, want %d: %s", line, body, got, status, answer)
	}
}

// Agent is one that is registered.
type Agent struct {
	*Node
	directory.Registered
	Private ed25519.PrivateKey
}

// Registration is the body of one, with more members behind.
func Registration(name, tenant string, private ed25519.PrivateKey, more string) string {
	pem, _ := json.Marshal(roster.EncodePublicKey(private.Public().(ed25519.PublicKey)))
	return fmt.Sprintf(`{"name":%q,"tenant":%q,"public_key":%s,"key_algorithm":"Ed25519"%s}`, name, tenant, pem, more)
}

// Register registers an agent, with a key of its own.
func (n *Node) Register(name, tenant string) *Agent {
	n.T.Helper()
	_, private, _ := ed25519.GenerateKey(nil)
	a := &Agent{Node: n, Private: private}
	n.Want(201, "", "POST /v1/register", Registration(name, tenant, private, ""), &a.Registered)
	return a
}

// Who is the agent as the server knows it by its key.
func (a *Agent) Who() roster.Identity {
	a.T.Helper()
	who, err := a.Roster.Authenticate(context.Background(), a.APIKey)
	if err != nil {
		a.T.Fatal(err)
	}
	return who
}

// RotateKey gives the agent a new public key.
func (a *Agent) RotateKey() {
	a.T.Helper()
	_, fresh, _ := ed25519.GenerateKey(nil)
	pem := roster.EncodePublicKey(fresh.Public().(ed25519.PublicKey))
	text, _ := json.Marshal(map[string]string{
		"new_public_key": pem,
		"proof":          base64.StdEncoding.EncodeToString(ed25519.Sign(a.Private, []byte(pem))),
	})
	a.Want(200, a.APIKey, "POST /v1/auth/rotate-keys", string(text), nil)
	a.Private = fresh
}

// SignText signs a message whose payload is canonical as it stands.
func SignText(key ed25519.PrivateKey, from, to, subject, payload string) string {
	sum := sha256.Sum256([]byte(payload))
	text := strings.Join([]string{from, to, subject, "normal", "", base64.StdEncoding.EncodeToString(sum[:])}, "|")
	return base64.StdEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}

// Letter is a signed message.
func (a *Agent) Letter(to, subject, message, more string) []byte {
	payload := fmt.Sprintf(`{"message":%q,"type":"request"}`, message)
	signature := SignText(a.Private, a.Address, to, subject, payload)
	return fmt.Appendf(nil, `{"to":%q,"subject":%q,"payload":%s,"signature":%q%s}`, to, subject, payload, signature, more)
}

// Send sends a message that should be taken.
func (a *Agent) Send(to, subject, message string) mail.Answer {
	a.T.Helper()
	out, err := a.Mail.Route(context.Background(), a.Who(), a.Letter(to, subject, message, ""))
	if err != nil {
		a.T.Fatal(err)
	}
	return out
}

// Got is a message as its recipient gets it.
type Got struct {
	ID       string
	Envelope amp.Envelope
	Payload  struct{ Message string }
	Local    struct{ Security mail.Security }
}

// Mailbox is what waits for the agent, the oldest first.
func (a *Agent) Mailbox() []Got {
	a.T.Helper()
	var page struct{ Messages []Got }
	a.Want(200, a.APIKey, "GET /v1/messages/pending", "", &page)
	return page.Messages
}

// Inbox is the ids of it.
func (a *Agent) Inbox() (ids []string) {
	a.T.Helper()
	for _, m := range a.Mailbox() {
		ids = append(ids, m.ID)
	}
	return ids
}

// Ack acknowledges a message.
func (a *Agent) Ack(id string) {
	a.T.Helper()
	a.Want(200, a.APIKey, "DELETE /v1/messages/pending/"+id, "", nil)
}

// Operator adds an operator.
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

// Shown is a message as operators see it.
func (n *Node) Shown(id string) mail.Summary {
	n.T.Helper()
	s, err := n.Mail.Message(context.Background(), id)
	if err != nil {
		n.T.Fatal(err)
	}
	return s.Summary
}

// Code is the code of an error, "" for none.
func Code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}
