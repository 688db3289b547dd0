package conform

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"signalbox/internal/wire"
)

// MailKit runs the cases of mail against a provider. With an operator's token it makes
// a workspace and an owner of its own.
type MailKit struct {
	URL   string
	Token string // an operator's, "" for none
	// Loopback says that the server may call this machine.
	Loopback bool

	http   *http.Client
	round  string
	tenant string
	open   bool   // registration takes no key
	owner  string // an owner's key
}

// Run runs every case, one after another. The error is about the round.
func (k *MailKit) Run(ctx context.Context, suite *MailSuite) (report Report, err error) {
	k.round = strings.ToLower(rand.Text()[:8])
	k.tenant = "conform-" + k.round
	k.http = newHTTP(longest)
	defer k.http.CloseIdleConnections()
	if err := k.prepare(ctx); err != nil {
		return report, err
	}
	err = report.each(ctx, len(suite.Cases), func(i int) Outcome { return k.run(ctx, &suite.Cases[i], i) })
	return report, err
}

// prepare finds out how agents are registered, and makes what the cases share.
func (k *MailKit) prepare(ctx context.Context) error {
	if k.Token != "" {
		// A workspace of its own keeps the kit's agents apart from those of people.
		body, _ := wire.Marshal(map[string]string{"name": k.tenant})
		if r, err := k.call(ctx, "POST /ops/workspaces", body, k.Token); err != nil || r.http != http.StatusCreated {
			return fmt.Errorf("cannot make a workspace for the cases: %d %.200s %w", r.http, r.body, err)
		}
		body, _ = wire.Marshal(map[string]string{"name": "owner-" + k.round, "workspace": k.tenant})
		r, err := k.call(ctx, "POST /ops/owners", body, k.Token)
		var made struct {
			Key string `json:"key"`
		}
		if err != nil || wire.UnmarshalPart(r.body, &made) != nil || made.Key == "" {
			return fmt.Errorf("cannot make an owner for the cases: %.200s %w", r.body, err)
		}
		k.owner = made.Key
	}
	// Registration is tried without a key, to find out whether strangers may.
	probe := k.newActor("probe", "probe-"+k.round)
	r, err := k.call(ctx, "POST /v1/register", probe.registration(k.tenant), "")
	if err != nil {
		return err
	}
	k.open = r.http == http.StatusCreated
	if !k.open && k.Token == "" {
		return fmt.Errorf("the server registers no strangers (%d %.200s); give an operator's token", r.http, r.body)
	}
	return nil
}

// call makes a call, such as "GET /v1/health", with a key and pairs of headers. It
// waits when too many were made, unless the step is about that.
func (k *MailKit) call(ctx context.Context, line string, body []byte, token string, headers ...string) (reply, error) {
	method, address, _ := strings.Cut(line, " ")
	if !strings.Contains(address, "://") {
		address = strings.TrimSuffix(k.URL, "/") + address
	}
	header := http.Header{}
	if body != nil {
		header.Set("Content-Type", "application/json")
	}
	if token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		header.Set(headers[i], headers[i+1])
	}
	try := func() (reply, error) { return call(ctx, k.http, method, address, body, header) }
	// The marker travels in the context, since call has more parameters than is good
	// already.
	if ctx.Value(expectsLimit{}) != nil {
		return try()
	}
	return whileLimited(ctx, try)
}

// expectsLimit marks the context of a call that is meant to be one too many.
type expectsLimit struct{}

// actor is an agent of a case, with its key pair.
type actor struct {
	as, name, address, id, key string
	private                    ed25519.PrivateKey
}

// newActor makes an agent with a new key pair. It is not registered.
func (k *MailKit) newActor(as, name string) *actor {
	_, private, _ := ed25519.GenerateKey(nil) // never fails
	return &actor{as: as, name: name, private: private}
}

// pemOf is a public key as PEM, without the line break at the end.
func pemOf(key ed25519.PublicKey) string {
	der, _ := x509.MarshalPKIXPublicKey(key) // an Ed25519 key always can
	return strings.TrimSpace(string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})))
}

// public is the agent's public key.
func (a *actor) public() ed25519.PublicKey { return a.private.Public().(ed25519.PublicKey) }

// registration is the request that registers the agent.
func (a *actor) registration(tenant string) []byte {
	// texts
	body, _ := wire.Marshal(map[string]string{
		"tenant": tenant, "name": a.name, "public_key": pemOf(a.public()),
		"key_algorithm": "Ed25519",
	})
	return body
}

// register registers an agent: without a key if the provider lets strangers in, else as
// the operator.
func (k *MailKit) register(ctx context.Context, a *actor) error {
	token := ""
	if !k.open {
		token = k.Token
	}
	r, err := k.call(ctx, "POST /v1/register", a.registration(k.tenant), token)
	if err != nil {
		return err
	}
	var out struct {
		Address string `json:"address"`
		AgentID string `json:"agent_id"`
		APIKey  string `json:"api_key"`
	}
	if wire.UnmarshalPart(r.body, &out) != nil || r.http != http.StatusCreated || out.APIKey == "" || out.Address == "" {
		return fmt.Errorf("registering %s was answered with %d: %.300s", a.as, r.http, r.body)
	}
	a.address, a.id, a.key = out.Address, out.AgentID, out.APIKey
	return nil
}

// mailBench is the state of a running case.
type mailBench struct {
	*MailKit
	actors  map[string]*actor
	words   []string // names and values, for a strings.Replacer
	sent    *sentLetter
	sockets map[string]*websocket.Conn
	hooks   map[string]chan hookCall
	after   []func() // what ends with the case
}

// sentLetter is the message that was sent last.
type sentLetter struct {
	id, payload       string
	from              *actor
	subject, priority string
	inReplyTo, hash   string
	signed            bool
}

// hookCall is a call that a webhook got.
type hookCall struct {
	header http.Header
	body   []byte
}

// run runs one case, with new agents, and closes what it has opened.
func (k *MailKit) run(ctx context.Context, c *MailCase, number int) Outcome {
	for _, n := range c.Needs {
		switch {
		case n == Operator && k.Token == "":
			return Outcome{c.Name, "skipped", "there is no operator's token"}
		case n == Loopback && !k.Loopback:
			return Outcome{c.Name, "skipped", "the server cannot call this machine"}
		case n == OpenDoor && !k.open:
			return Outcome{c.Name, "skipped", "registration is not open"}
		}
	}
	b := &mailBench{
		MailKit: k, actors: map[string]*actor{}, sockets: map[string]*websocket.Conn{},
		hooks: map[string]chan hookCall{},
	}
	defer func() {
		for _, conn := range b.sockets {
			_ = conn.CloseNow()
		}
		for _, end := range b.after {
			end()
		}
	}()
	err := b.prepare(ctx, c, number)
	if err == nil {
		err = runSteps(c.Steps, func(s MailStep) error { return b.step(ctx, s) })
	}
	return outcome(c.Name, err)
}

// prepare registers the agents of the case and defines their words.
func (b *mailBench) prepare(ctx context.Context, c *MailCase, number int) error {
	// New agents for every case: a queue or a key that one case has changed does not matter
	// to the next.
	names := []string{"alice", "bob"}
	if c.Agents != nil {
		names = *c.Agents
	}
	stranger := b.newActor("stranger", "x")
	b.define("tenant", b.tenant, "new_name", fmt.Sprintf("new-%d-%s", number, b.round), "stranger_pem",
		escaped(pemOf(stranger.public())))
	for _, as := range names {
		a := b.newActor(as, fmt.Sprintf("%s-%d-%s", as, number, b.round))
		if err := b.register(ctx, a); err != nil {
			return err
		}
		b.actors[as] = a
		_, domain, _ := strings.Cut(a.address, "@")
		b.define(as, a.address, as+"_name", a.name, as+"_id", a.id, as+"_key", a.key, as+"_pem", escaped(pemOf(a.public())),
			"provider", strings.TrimPrefix(domain, b.tenant+"."))
	}
	return nil
}

// escaped is a text of several lines as it stands inside a JSON string.
func escaped(text string) string { return strings.ReplaceAll(text, "\n", `\n`) }

// define defines words, in pairs of name and value. Longer names come first, so that
// $alice_key is not read as $alice and more. A name that is defined again has its new
// value.
func (b *mailBench) define(pairs ...string) {
	for i := 0; i < len(pairs); i += 2 {
		name := "$" + pairs[i]
		at := 0
		for at < len(b.words) && len(b.words[at]) >= len(name) {
			if b.words[at] == name {
				b.words = append(b.words[:at], b.words[at+2:]...)
				continue
			}
			at += 2
		}
		b.words = append(b.words[:at], append([]string{name, pairs[i+1]}, b.words[at:]...)...)
	}
}

// expand replaces the words in a text.
func (b *mailBench) expand(text string) string { return strings.NewReplacer(b.words...).Replace(text) }

// key is the key with which a step is done. raw says that it is sent without the scheme
// Bearer, as some clients do.
func (b *mailBench) key(as string) (token string, raw bool) {
	switch as {
	case "", "none":
		return "", false
	case "wrong":
		return "amp_live_sk_" + strings.Repeat("0", 64), false
	case "operator":
		return b.Token, false
	case "owner":
		return b.owner, false
	}
	name, raw := strings.CutPrefix(as, "raw:")
	if a := b.actors[name]; a != nil {
		return a.key, raw
	}
	return b.expand(as), raw
}

// step does what a step says: one of the special things, or a call.
func (b *mailBench) step(ctx context.Context, s MailStep) error {
	switch {
	case s.Prove != nil:
		return b.prove(*s.Prove)
	case s.Receive != nil:
		return b.receive(ctx, *s.Receive, s.Expect)
	case s.Socket != nil:
		return b.socket(ctx, *s.Socket, s.Expect)
	case s.Hook != "":
		return b.hook(ctx, s)
	}
	line, body, token, raw := b.expand(s.Call), []byte(nil), "", false
	if s.Get != "" {
		line = "GET " + b.expand(s.Get)
	}
	if s.Put != "" {
		line = "PUT " + b.expand(s.Put)
	}
	if s.Send != nil {
		l := *s.Send
		if l.From == "" {
			l.From = "alice"
		}
		body, token = b.letter(l), b.actors[l.From].key
		if line == "" {
			line = "POST /v1/route"
		}
	}
	if s.Body != nil {
		body = []byte(b.expand(*s.Body))
	}
	if missing := s.Pad - len(body); missing > 0 {
		body = append(body, bytes.Repeat([]byte(" "), missing)...)
	}
	if s.As != "" {
		token, raw = b.key(s.As)
	}
	var headers []string
	for name, value := range s.Headers {
		headers = append(headers, name, b.expand(value))
	}
	if raw {
		headers, token = append(headers, "Authorization", token), ""
	}
	if s.Expect.HTTP == http.StatusTooManyRequests {
		ctx = context.WithValue(ctx, expectsLimit{}, true)
	}
	var r reply
	// Repeated calls are for limits, where only the last answer differs.
	for range max(s.Times, 1) {
		var err error
		if r, err = b.call(ctx, line, body, token, headers...); err != nil {
			return err
		}
	}
	if err := s.Expect.check(r, b.expand); err != nil {
		return err
	}
	return b.saveValues(r.body, s)
}

// saveValues takes what a step saves out of the answer. The id of a sent message is always
// $msg.
func (b *mailBench) saveValues(body []byte, s MailStep) error {
	value, _ := wire.Data(body)
	// Only a message has an id to remember; errors have none.
	if s.Send != nil {
		if id, ok := lookup(value, "id"); ok {
			b.sent.id = fmt.Sprint(id)
			b.define("msg", b.sent.id)
		}
	}
	for name, path := range s.Save {
		got, ok := lookup(value, path)
		if !ok {
			return fmt.Errorf("the answer has no %s: %.300s", path, body)
		}
		b.define(name, fmt.Sprint(got))
	}
	return nil
}

// prove makes a proof for a new key. Over says what is signed: clients of different
// generations sign different forms of the same key.
func (b *mailBench) prove(p Proof) error {
	fresh, stranger := b.newActor("fresh", ""), b.newActor("stranger", "")
	signer := b.actors[p.By]
	if signer == nil {
		signer = stranger
	}
	text := pemOf(fresh.public())
	b.define("new_pem", escaped(text))
	der, _ := x509.MarshalPKIXPublicKey(fresh.public()) // an Ed25519 key always can
	now := strconv.FormatInt(time.Now().Add(-time.Duration(p.Age)*time.Second).Unix(), 10)
	over, ok := map[string]string{
		"sent": text, "newline": text + "\n", "hex": hex.EncodeToString(fresh.public()), "raw": string(fresh.public()),
		"der":          string(der),
		"registration": "amp-register\n" + b.expand("$provider") + "\n" + b.expand("$alice") + "\n" + now,
	}[p.Over]
	if !ok {
		return fmt.Errorf("there is no proof over %q", p.Over)
	}
	b.define("proof_time", now, "proof", base64.StdEncoding.EncodeToString(ed25519.Sign(signer.private, []byte(over))))
	return nil
}

// hook starts a receiver for an agent's webhook, whose address is $hook, or waits for a
// call if it is started.
func (b *mailBench) hook(ctx context.Context, s MailStep) error {
	calls := b.hooks[s.Hook]
	if calls == nil {
		calls = make(chan hookCall, 16)
		b.hooks[s.Hook] = calls
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		// Calls are kept in a channel with room, so that the receiver answers at once.
		receiver := &http.Server{
			ReadHeaderTimeout: longest,
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body) // what is missing shows in the check
				calls <- hookCall{r.Header, body}
			}),
		}
		go func() { _ = receiver.Serve(listener) }()
		b.after = append(b.after, func() { _ = receiver.Close() })
		b.define("hook", "http://"+listener.Addr().String())
		return nil
	}
	select {
	case got := <-calls:
		return b.checkHook(got, s.Expect)
	case <-time.After(longest):
		return errors.New("the webhook was not called")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// idLike matches message ids that every client accepts.
var idLike = regexp.MustCompile(`^msg[_-][0-9]+[_-][A-Za-z0-9]+$`)
