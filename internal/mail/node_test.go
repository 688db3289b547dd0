package mail_test

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

// node is a process that routes mail, with everything it needs. It serves its routes.
type node struct {
	*protocoltest.Node
	mail  *mail.Mail
	web   *httptest.Server
	blobs string // the folder of attachments
	stop  func()
}

// start starts a node on the database, with what options change and no limits.
func start(t testing.TB, address string, options ...func(*mail.Options)) *node {
	t.Helper()
	none := int64(0)
	return startLimited(t, address, &none, options...)
}

// startLimited starts a node with limits: the protocol's own for nil.
func startLimited(t testing.TB, address string, perAgent *int64, options ...func(*mail.Options)) *node {
	t.Helper()
	o := mail.Options{
		Domains: amp.Domains{Own: "signalbox.local", Aliases: []string{"aimaestro.local"}}, Registration: directory.Open, Keep: 30 * 24 * time.Hour,
	}
	for _, option := range options {
		option(&o)
	}
	web := httptest.NewUnstartedServer(nil)
	n := &node{blobs: t.TempDir(), web: web, Node: protocoltest.New(t, address, protocoltest.On{
		Protocol: mail.Protocol(),
		Core: func(c *protocol.Core) { // each provider has a key of its own
			c.Key, c.BaseURL = []byte(strings.Repeat(o.Domains.Own[:1], 32)), "http://"+web.Listener.Addr().String()
		},
		Roster: func(r *roster.Options) { r.Provider, r.PerAgent = o.Domains.Own, perAgent },
		Outbox: func(d *deliver.Options) {
			d.Timeout, d.Lease, d.Pauses = time.Second, 2*time.Second, []time.Duration{time.Millisecond}
		},
	})}
	blobs, err := blob.Open(n.blobs)
	if err != nil {
		t.Fatal(err)
	}
	o.Blobs = blobs
	n.mail = mail.New(n.Core, o)
	ctx, cancel := context.WithCancel(context.Background())
	web.Config.Handler = n.handler(ctx)
	web.Start()
	n.Start(n.mail)
	n.stop = sync.OnceFunc(func() { cancel(); n.web.Close(); n.Stop() })
	t.Cleanup(n.stop)
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

// call makes a call and decodes the answer.
func (n *node) call(key, line, body string, into any) (status int, answer string) {
	n.T.Helper()
	method, path, _ := strings.Cut(line, " ")
	req, err := http.NewRequestWithContext(context.Background(), method, n.web.URL+path, strings.NewReader(body))
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

// want makes a call that should be answered with the status.
func (n *node) want(status int, key, line, body string, into any) {
	n.T.Helper()
	if got, answer := n.call(key, line, body, into); got != status {
		n.T.Fatalf("%s %.200s: %d, want %d: %s", line, body, got, status, answer)
	}
}

// agent is one that is registered.
type agent struct {
	*node
	directory.Registered
	private ed25519.PrivateKey
}

func registration(name, tenant string, private ed25519.PrivateKey, more string) string {
	pem, _ := json.Marshal(roster.EncodePublicKey(private.Public().(ed25519.PublicKey)))
	return fmt.Sprintf(`{"name":%q,"tenant":%q,"public_key":%s,"key_algorithm":"Ed25519"%s}`, name, tenant, pem, more)
}

func (n *node) register(name, tenant string) *agent {
	n.T.Helper()
	_, private, _ := ed25519.GenerateKey(nil)
	a := &agent{node: n, private: private}
	n.want(201, "", "POST /v1/register", registration(name, tenant, private, ""), &a.Registered)
	return a
}

func (a *agent) who() roster.Identity {
	a.T.Helper()
	who, err := a.Roster.Authenticate(context.Background(), a.APIKey)
	if err != nil {
		a.T.Fatal(err)
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
	a.T.Helper()
	out, err := a.mail.Route(context.Background(), a.who(), a.letter(to, subject, message, ""))
	if err != nil {
		a.T.Fatal(err)
	}
	return out
}

// inbox is the ids of what waits for the agent, the oldest first.
func (a *agent) inbox() (ids []string) {
	a.T.Helper()
	var page struct{ Messages []struct{ ID string } }
	a.want(200, a.APIKey, "GET /v1/messages/pending", "", &page)
	for _, m := range page.Messages {
		ids = append(ids, m.ID)
	}
	return ids
}

func (a *agent) ack(id string) {
	a.T.Helper()
	a.want(200, a.APIKey, "DELETE /v1/messages/pending/"+id, "", nil)
}

func (n *node) operator(name string) (key string, who roster.Identity) {
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

func (n *node) shown(id string) mail.Summary {
	n.T.Helper()
	s, err := n.mail.Message(context.Background(), id)
	if err != nil {
		n.T.Fatal(err)
	}
	return s.Summary
}

func code(err error) fault.Code {
	if err == nil {
		return ""
	}
	return fault.From(err).Code
}
