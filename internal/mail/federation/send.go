package federation

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"strconv"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Parcel is a message to send to a target.
type Parcel struct {
	amp.Message

	Replaces string // the fingerprint that the sender's key replaced, "" for none
	// Rotations lead from the key that the sender was registered with to that of now (MSG-98).
	Rotations []amp.Rotation
	// Files are the attachments as this host recorded them, without their URLs. Hosts of the mesh get them.
	Files []amp.Attachment
}

// Reply is the answer of a target about the message.
type Reply struct {
	Status int
	Text   []byte
}

// said is what matters of an answer in the protocol's form.
type said struct {
	Error   string `json:"error"`
	Message string `json:"message"`
	Status  string `json:"status"`
	Details struct {
		Duplicate string `json:"duplicate"`
		Status    string `json:"status"`
	} `json:"details"`
}

// The values of details.duplicate and details.status in the refusal of a message that was received before.
const (
	// BySignature says that another message with this signature was received, and not this one.
	BySignature = "signature"
	held        = "quarantined"
)

func (r Reply) read() (s said) {
	_ = wire.UnmarshalPart(r.Text, &s) // the status has decided; AI Maestro and proxies may say anything
	return s
}

// Taken reports whether the other side has the message, and whether it holds it for a person (MSG-83). A duplicate means
// that an earlier answer was lost, unless what was received is another message with the same signature.
func (r Reply) Taken() (taken, isHeld bool) {
	s := r.read()
	switch r.Status {
	case http.StatusOK, http.StatusAccepted:
		return true, r.Status == http.StatusAccepted || s.Status == held
	case http.StatusConflict:
		return s.Error == string(fault.DuplicateMessage) && s.Details.Duplicate != BySignature, s.Details.Status == held
	}
	return false, false
}

// Reason is what the answer says, in its own words.
func (r Reply) Reason() string { return cmp.Or(r.read().Message, string(r.Text)) }

// Send makes one call to a target. The result is nil if there is an answer about the message;
// otherwise it says why there is none, and the outbox tries again.
func (f *Federation) Send(ctx context.Context, to Target, p *Parcel) (Reply, *deliver.Result) {
	// Providers are called through the guard; hosts of the mesh may be in private networks.
	prepare, client := f.forProvider, f.core.Outbox.Client()
	if _, mesh := to.Host(); mesh {
		prepare, client = f.forHost, f.hosts
	}
	req, failed := prepare(ctx, to, p)
	if failed != nil {
		return Reply{}, failed
	}
	res, err := client.Do(req)
	if err != nil {
		r := deliver.ExplainDial(err)
		return Reply{}, &r
	}
	defer func() { _ = res.Body.Close() }()
	// Read in any case, so that the connection can be used again.
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxDocument)) // the status has decided
	if name, mesh := to.Host(); mesh && res.StatusCode == http.StatusUnauthorized {
		// A wrong secret is an error of configuration, not of the message: it must not end it.
		return Reply{}, &deliver.Result{
			Status: res.StatusCode, Class: "status",
			Text: "The host " + name + " does not take our secret for the one that we share.",
		}
	}
	return Reply{res.StatusCode, answer}, nil
}

// forProvider makes the call to a provider, signed over the raw bytes of the body (MSG-80).
func (f *Federation) forProvider(ctx context.Context, to Target, p *Parcel) (*http.Request, *deliver.Result) {
	peer, err := f.peer(ctx, string(to))
	if err != nil {
		return nil, &deliver.Result{Class: "discovery", Text: fault.From(err).Message}
	}
	body, err := p.JSON()
	if err != nil {
		return nil, unwritable()
	}
	req, err := post(ctx, peer.endpoint+"/federation/deliver", body)
	if err != nil {
		return nil, &deliver.Result{Class: "discovery", Text: "The endpoint of the provider is no address."}
	}
	at := strconv.FormatInt(f.core.Now().Unix(), 10)
	req.Header.Set("X-AMP-Provider", f.options.Domains.Own)
	req.Header.Set("X-AMP-Timestamp", at)
	req.Header.Set("X-AMP-Signature", base64.StdEncoding.EncodeToString(ed25519.Sign(f.key, signedCall(at, body))))
	if p.Replaces != "" {
		req.Header.Set("X-AMP-Key-Revoked", p.Replaces)
	}
	return req, nil
}

// forHost makes the call to a host of the mesh. Its path and headers are those that AI Maestro
// uses between hosts, with our proof beside them.
func (f *Federation) forHost(ctx context.Context, to Target, p *Parcel) (*http.Request, *deliver.Result) {
	name, _ := to.Host()
	host, known := f.options.Mesh.Hosts[name]
	if !known {
		return nil, &deliver.Result{Class: "discovery", Text: "The host " + name + " is not configured any more."}
	}
	body, err := f.forwarded(p)
	if err != nil {
		return nil, unwritable()
	}
	req, err := post(ctx, host.URL+"/api/v1/route", body)
	if err != nil {
		return nil, &deliver.Result{Class: "discovery", Text: "The address of the host is invalid."}
	}
	req.Header.Set("X-AMP-Envelope-Id", p.Envelope.ID)
	req.Header.Set("X-AMP-Signature", p.Envelope.Signature)
	if key, err := roster.ParsePublicKey(p.SenderKey); err == nil {
		req.Header.Set("X-AMP-Sender-Key", hex.EncodeToString(key))
	}
	f.signForHost(req, name, body)
	return req, nil
}

// unwritable ends a delivery whose message cannot be encoded: another attempt would be the same.
func unwritable() *deliver.Result {
	return &deliver.Result{Verdict: deliver.Hopeless, Class: "internal", Text: "The message cannot be written."}
}

// post is a request with a JSON body.
func post(ctx context.Context, address string, body []byte) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

// forwarding is the member _forwarded of a message to another host.
type forwarding struct {
	OriginalFrom string `json:"original_from"`
	OriginalTo   string `json:"original_to"`
	By           string `json:"forwarded_by"`
	At           string `json:"forwarded_at"`
	KeyRevoked   string `json:"key_revoked,omitzero"` // the fingerprint that the sender's key replaces
	// Rotations are the proofs by which the sender changed its key, the oldest first.
	Rotations []amp.Rotation `json:"key_rotations,omitempty"`
	// Attachments are in the order of the payload's.
	Attachments []amp.Attachment `json:"attachments,omitzero"`
}

// forwarded is the body of a call to another host: the message in its flat form, with _forwarded.
func (f *Federation) forwarded(p *Parcel) ([]byte, error) {
	e := &p.Envelope
	text, err := wire.Marshal(struct {
		ID        string     `json:"id"`
		From      string     `json:"from"`
		To        string     `json:"to"`
		Subject   string     `json:"subject"`
		Priority  string     `json:"priority"`
		InReplyTo string     `json:"in_reply_to,omitzero"`
		ThreadID  string     `json:"thread_id"`
		ExpiresAt string     `json:"expires_at,omitzero"`
		Timestamp string     `json:"timestamp"`
		Signature string     `json:"signature"`
		Forwarded forwarding `json:"_forwarded"`
	}{
		e.ID, e.From, e.To, e.Subject, e.Priority, e.InReplyTo, e.ThreadID, e.ExpiresAt, e.Timestamp, e.Signature,
		forwarding{e.From, e.To, f.options.Mesh.Host, amp.Stamp(f.core.Now()), p.Replaces, p.Rotations, p.Files},
	})
	if err != nil {
		return nil, err
	}
	return wire.Splice(text, wire.Member{Name: "payload", Value: p.Payload}), nil
}
