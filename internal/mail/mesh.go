package mail

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// ByMesh is how a message reaches another host of our provider.
const ByMesh = "mesh"

const (
	meshSender = "mail-mesh"  // the kind of deliveries to other hosts
	meshPrefix = ByMesh + ":" // before the host, where a provider's domain could stand
	meshTime   = 10 * time.Second
	askTime    = 3 * time.Second // how long a host may take to say whether an agent is there
	foundTime  = time.Minute     // how long it is remembered where an agent is
)

// Mesh is a set of hosts that serve one provider together, each with agents of its own.
type Mesh struct {
	Host  string // the id by which the others know us
	Hosts map[string]MeshHost
	// Open are networks whose calls are believed without a secret: whoever is there can
	// say to be any host, and any agent. For hosts that cannot sign.
	Open []netip.Prefix
}

// MeshHost is another host.
type MeshHost struct {
	URL    string
	Secret wire.Secret // the same on both sides
}

// meshBook remembers where agents are.
type meshBook struct {
	mu    sync.Mutex
	found map[string]foundAt // by address
}

type foundAt struct {
	host  string
	until time.Time
}

// meshClient calls hosts that an operator has configured, wherever they are.
var meshClient = &http.Client{
	Timeout:       meshTime,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// elsewhere settles that a recipient of our provider, who is not here, is with another
// host of the mesh. notHere is the answer when no host has it.
func (m *Mail) elsewhere(ctx context.Context, l *letter, notHere error) error {
	to := m.Domains.Home(l.to)
	host, err := m.hostOf(ctx, to)
	if err != nil {
		return err
	}
	if host == "" {
		return notHere
	}
	l.remote = meshPrefix + host
	l.recipient = roster.Identity{ID: queueOf(l.remote), Address: to.String()}
	return nil
}

// hostOf finds the host that has an agent: the one that the address names in the place of
// a tenant, or the one that says so. "" when all say that they do not.
func (m *Mail) hostOf(ctx context.Context, a amp.Address) (string, error) {
	if _, named := m.Mesh.Hosts[a.Tenant]; named {
		return a.Tenant, nil
	}
	now, address := m.core.Now(), a.String()
	m.mesh.mu.Lock()
	known := m.mesh.found[address]
	m.mesh.mu.Unlock()
	if now.Before(known.until) {
		return known.host, nil
	}
	var mu sync.Mutex
	var host string
	var asked errgroup.Group
	for name := range m.Mesh.Hosts {
		asked.Go(func() error {
			there, err := m.ask(ctx, name, address)
			mu.Lock()
			defer mu.Unlock()
			if there {
				host = cmp.Or(host, name)
			}
			return err
		})
	}
	if err := asked.Wait(); host == "" {
		return "", err
	}
	m.mesh.mu.Lock()
	defer m.mesh.mu.Unlock()
	if m.mesh.found == nil || len(m.mesh.found) >= maxRooms {
		m.mesh.found = map[string]foundAt{}
	}
	m.mesh.found[address] = foundAt{host, now.Add(foundTime)}
	return host, nil
}

// ask asks a host whether it has an agent.
func (m *Mail) ask(ctx context.Context, host, address string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	silent := func(err error) error {
		return fault.Wrap(err, fault.HostUnavailable, "%s is not here, and the host %s, which may have it, does not answer. Send the message again later.", address, host).About("to")
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.Mesh.Hosts[host].URL+"/api/agents/by-name/"+url.PathEscape(address), nil)
	if err != nil {
		return false, silent(err)
	}
	m.signMesh(req, host, nil)
	res, err := meshClient.Do(req)
	if err != nil {
		return false, silent(err)
	}
	defer func() { _ = res.Body.Close() }()
	switch res.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusNotFound:
		return false, nil
	}
	return false, silent(fmt.Errorf("answered %s", res.Status))
}

// signMesh says who we are, and proves it with the secret that we share with the host.
func (m *Mail) signMesh(req *http.Request, host string, body []byte) {
	at := strconv.FormatInt(m.core.Now().Unix(), 10)
	req.Header.Set("X-Forwarded-From", m.Mesh.Host)
	req.Header.Set("X-AMP-Timestamp", at)
	if secret := m.Mesh.Hosts[host].Secret.Reveal(); secret != "" {
		req.Header.Set("X-AMP-Mesh-Auth", meshProof(secret, at, m.Mesh.Host, body))
	}
}

// meshProof is HMAC-SHA256 over the time, the calling host and the digest of the body.
func meshProof(secret, at, host string, body []byte) string {
	sum := sha256.Sum256(body)
	h := hmac.New(sha256.New, []byte(secret))
	h.Write([]byte(at + "." + host + "." + hex.EncodeToString(sum[:])))
	return "v1=" + hex.EncodeToString(h.Sum(nil))
}

// hosts sends messages to other hosts.
type hosts struct{ *Mail }

// Send makes one call.
func (s hosts) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	p, err := s.inQueueOf(ctx, queueOf(a.Target), string(a.Payload))
	if err != nil {
		return deliver.Result{Class: "internal", Text: fault.From(err).Message}
	}
	if p == nil {
		return deliver.Result{Verdict: deliver.Succeeded, Text: "The message has left the queue."}
	}
	name := strings.TrimPrefix(a.Target, meshPrefix)
	host, known := s.Mesh.Hosts[name]
	if !known {
		return deliver.Result{Class: "discovery", Text: "The host " + name + " is not configured any more."}
	}
	body, err := s.forward(ctx, p)
	if err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "internal", Text: "The message cannot be written."}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, host.URL+"/api/v1/route", bytes.NewReader(body))
	if err != nil {
		return deliver.Result{Class: "discovery", Text: "The address of the host is none."}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-AMP-Envelope-Id", p.ID)
	req.Header.Set("X-AMP-Signature", p.Envelope.Signature)
	if key, err := roster.ParsePublicKey(p.SenderKey); err == nil {
		req.Header.Set("X-AMP-Sender-Key", hex.EncodeToString(key))
	}
	s.signMesh(req, name, body)
	res, err := meshClient.Do(req)
	if err != nil {
		return deliver.ExplainDial(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxDocument)) // the status has decided
	if res.StatusCode == http.StatusUnauthorized {
		// What is wrong is the configuration of one of us, and not the message.
		return deliver.Result{Status: res.StatusCode, Class: "status", Text: "The host " + name + " does not take our secret for the one that we share."}
	}
	return s.judgePeer(ctx, a, p, res.StatusCode, answer)
}

// forwarded is what is said of a message beside the message, when it goes to another host.
type forwarded struct {
	OriginalFrom string `json:"original_from"`
	OriginalTo   string `json:"original_to"`
	By           string `json:"forwarded_by"`
	At           string `json:"forwarded_at"`
	KeyRevoked   string `json:"key_revoked,omitzero"` // the fingerprint that the sender's key replaces
}

// forward is the flat form of a message with where it comes from.
func (s hosts) forward(ctx context.Context, p *Pending) ([]byte, error) {
	e := &p.Envelope
	text, err := wire.Marshal(struct {
		ID        string    `json:"id"`
		From      string    `json:"from"`
		To        string    `json:"to"`
		Subject   string    `json:"subject"`
		Priority  string    `json:"priority"`
		InReplyTo string    `json:"in_reply_to,omitzero"`
		ThreadID  string    `json:"thread_id"`
		ExpiresAt string    `json:"expires_at,omitzero"`
		Timestamp string    `json:"timestamp"`
		Signature string    `json:"signature"`
		Forwarded forwarded `json:"_forwarded"`
	}{
		e.ID, e.From, e.To, e.Subject, e.Priority, e.InReplyTo, e.ThreadID, e.ExpiresAt, e.Timestamp, e.Signature,
		forwarded{e.From, e.To, s.Mesh.Host, amp.Stamp(s.core.Now()), s.Directory.Replaced(ctx, p.Envelope.From, p.SenderKey)},
	})
	if err != nil {
		return nil, err
	}
	text = append(bytes.TrimSuffix(text, []byte("}")), `,"payload":`...)
	return append(append(text, p.Payload...), '}'), nil
}

// RequestPath is where a request goes: CanonicalPath, and for a message that another host
// forwards, which has no agent's key, the call for those.
func RequestPath(r *http.Request) string {
	path := CanonicalPath(r.URL.EscapedPath())
	if path == "/v1/route" && r.Header.Get("X-Forwarded-From") != "" && r.Header.Get("Authorization") == "" {
		return "/v1/mesh/route"
	}
	return path
}

func (m *Mail) meshRoutes() []wire.Route {
	return []wire.Route{
		{Method: "POST", Path: "/v1/mesh/route", Summary: "A message from another host of this provider, which proves who it is; also at /v1/route with X-Forwarded-From", RequestMedia: "application/json", Answer: Answer{}, Handle: m.postMesh},
		{Method: "GET", Path: "/v1/agents/by-name/{address}", Summary: "Whether an agent is on this host, for another host of this provider", Answer: Located{}, Handle: m.getByName},
	}
}

// Located says that an agent is here.
type Located struct {
	Address string `json:"address"`
	Host    string `json:"host"`
}

func (m *Mail) getByName(w http.ResponseWriter, r *http.Request) error {
	if _, err := m.fromHost(r, nil); err != nil {
		return err
	}
	a, err := m.Domains.Parse(r.PathValue("address"))
	if err != nil || !m.Domains.Ours(a.Provider) {
		return fault.New(fault.NotFound, "%.254q is no address of this provider.", r.PathValue("address"))
	}
	found, err := m.Directory.Find(r.Context(), m.Domains.Home(a))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, Located{found.Address, m.Mesh.Host})
}

// fromHost finds out which host is calling: one that shares a secret with us and shows it
// by the proof, or, without proof, one in a network that is open. To name a host is no
// proof.
func (m *Mail) fromHost(r *http.Request, body []byte) (proved bool, err error) {
	name := r.Header.Get("X-Forwarded-From")
	host, known := m.Mesh.Hosts[name]
	if !known {
		return false, stranger()
	}
	at, proof, secret := r.Header.Get("X-AMP-Timestamp"), r.Header.Get("X-AMP-Mesh-Auth"), host.Secret.Reveal()
	if proof == "" {
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !slices.ContainsFunc(m.Mesh.Open, func(p netip.Prefix) bool { return p.Contains(from.Addr().Unmap()) }) {
			return false, stranger()
		}
		return false, nil
	}
	if secret == "" || !hmac.Equal([]byte(proof), []byte(meshProof(secret, at, name, body))) {
		return false, stranger()
	}
	seconds, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return false, stranger()
	}
	return true, m.timely(time.Unix(seconds, 0))
}

func stranger() error {
	return fault.New(fault.Unauthenticated, "The header X-Forwarded-From is believed of a host that proves itself: X-AMP-Mesh-Auth has to be v1= and the HMAC-SHA256, with the secret that both hosts have, of X-AMP-Timestamp, X-Forwarded-From and the SHA-256 of the body in hex, with dots between. An agent sends its key as Authorization: Bearer ….")
}

func (m *Mail) postMesh(w http.ResponseWriter, r *http.Request) error {
	if _, known := m.Mesh.Hosts[r.Header.Get("X-Forwarded-From")]; !known {
		return stranger()
	}
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	proved, err := m.fromHost(r, body)
	if err != nil {
		return err
	}
	answer, err := m.takeForwarded(r.Context(), body, r.Header, proved)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, answer)
}

// takeForwarded takes a message that another host answers for, as Import does from
// another provider. The same body is taken once, whatever its headers say.
func (m *Mail) takeForwarded(ctx context.Context, body []byte, header http.Header, proved bool) (Answer, error) {
	o, err := parseRoute(body)
	if err != nil {
		return Answer{}, err
	}
	outer, err := amp.ReadFields(body)
	if err != nil {
		return Answer{}, err
	}
	about := outer.Object("_forwarded")
	if about == nil {
		outer.Missing("_forwarded", `an object such as {"original_to": "bob@acme.signalbox.local", "forwarded_by": "host-a"}`)
		return Answer{}, outer.Err
	}
	o.to = cmp.Or(about.Text("original_to", amp.MaxAddress), o.to) // which was signed
	o.from = cmp.Or(o.from, about.Text("original_from", amp.MaxAddress))
	at, replaced := outer.Time("timestamp"), about.Text("key_revoked", 128)
	outer.Join(about)
	if outer.Err != nil {
		return Answer{}, outer.Err
	}
	if at.IsZero() {
		at = m.core.Now()
	}
	o.clientID = cmp.Or(o.clientID, header.Get("X-AMP-Envelope-Id"))
	o.idem = "mesh:" + o.request
	im := immigrant{domain: m.Domains.Own, at: at, replaces: replaced, hearsay: !proved, sameProvider: true}
	if o.signature != "" {
		im.key = header.Get("X-AMP-Sender-Key")
	}
	return m.takeIn(ctx, o, im)
}
