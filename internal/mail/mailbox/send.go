package mailbox

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json" // the folder is shared with clients that write what wire would refuse
	"net/http"
	"strings"

	"github.com/google/uuid"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// Draft is a message to send. The provider checks its limits; only what would become part of a file
// name or of the signature is checked here.
type Draft struct {
	From      string // an address or provider of the agent, "" for the one that fits the recipient
	To        string
	Subject   string
	Body      string
	Priority  string          // normal when empty
	Type      string          // request when empty
	Context   json.RawMessage // a JSON object, nil for none
	InReplyTo string          // the id of the message that it answers
	ThreadID  string          // a hint: the provider decides
	Files     []string        // paths, uploaded before the message is sent
	Receipt   bool            // ask for a receipt of the delivery
	Key       string          // idempotency key; a random one when empty
}

// Receipt is the provider's answer about an accepted message, with the addresses that were used.
type Receipt struct {
	ID       string   `json:"id"`     // the provider's
	Status   string   `json:"status"` // delivered, queued, quarantined (which is held), failed, rejected or expired
	Method   string   `json:"method"` // relay, websocket, webhook, mesh or federation
	GateID   string   `json:"gate_id,omitempty"`
	Error    string   `json:"error,omitempty"` // why it failed
	Note     string   `json:"note,omitempty"`  // why it has not arrived yet
	Warnings []string `json:"warnings,omitempty"`
	From     string   `json:"from"`
	To       string   `json:"to"`
}

// route is where messages are sent.
func (r *Registration) route() string { return cmp.Or(r.RouteURL, r.APIURL+"/route") }

// keyFor is the key that a provider knows. During an unfinished rotation some providers know the old
// one and some the new one.
func (b *Box) keyFor(r *Registration) ed25519.PrivateKey {
	if b.next != nil && r.Fingerprint == fingerprint(b.next) {
		return b.next
	}
	return b.key
}

// Send uploads the attachments, signs the message, sends it, and stores a copy under the provider's
// id. The recipient's address is expanded before it is signed, so that the recipient sees the
// signed spelling.
func (b *Box) Send(ctx context.Context, d Draft) (Receipt, error) {
	// The recipient's provider decides which of the agent's addresses is used.
	r, err := b.registration(d.From, d.To)
	if err != nil {
		return Receipt{}, err
	}
	to, err := r.domains().Expand(d.To, r.Tenant)
	if err != nil {
		return Receipt{}, err
	}
	// Checked here and not by the provider, since an invalid text could not even be encoded.
	if d.Context != nil && (!json.Valid(d.Context) || strings.TrimSpace(string(d.Context))[0] != '{') {
		return Receipt{},
			fault.New(fault.InvalidField, "The context should be a JSON object, such as {\"task_id\": \"12345\"}.")
	}
	// It is signed, so a provider cannot correct it.
	if d.InReplyTo != "" && !amp.IDForm.MatchString(d.InReplyTo) {
		return Receipt{},
			fault.New(fault.InvalidField, "A message's id should look like msg_1706648400_abc123, and is %.80q.", d.InReplyTo)
	}
	as := newCaller(r.apiKey)
	if b.Within != nil {
		if token := b.Within(r.route()); token != "" {
			as.header = http.Header{behalf.WithinHeader: {token}}
		}
	}
	payload := Payload{Type: cmp.Or(d.Type, "request"), Message: d.Body, Context: d.Context}
	if payload.Attachments, err = upload(ctx, as, r, d.Files); err != nil {
		return Receipt{}, err
	}
	d.From = r.spelling(to)
	return b.route(ctx, as, r, to.String(), d, payload)
}

// flat is the body of a request to route a message, in its flat shape. Members without a value are
// absent, not null.
//
// The signature covers the parts that MSG-37 names, not the whole body.
type flat struct {
	To             string          `json:"to"`
	Subject        string          `json:"subject"`
	Priority       string          `json:"priority"`
	Payload        json.RawMessage `json:"payload"`
	InReplyTo      string          `json:"in_reply_to,omitempty"`
	ThreadID       string          `json:"thread_id,omitempty"`
	Signature      string          `json:"signature"`
	IdempotencyKey string          `json:"idempotency_key"`
	Options        map[string]bool `json:"options,omitempty"`
}

// route signs and sends. The payload is encoded once: what is signed is what is sent. If the provider
// does not answer, the error names the idempotency key with which the message can be sent again.
//
// Strings are written in ASCII, as the verifier in the document writes them before it hashes (MSG-38). AI Maestro hashes
// UTF-8: a provider that refuses the signature for that is sent the other form.
func (b *Box) route(ctx context.Context, as *caller, r *Registration, to string, d Draft, payload Payload) (Receipt,
	error,
) {
	// These bytes are hashed, signed and sent; they must not be encoded a second time.
	key := cmp.Or(d.Key, "idk_"+uuid.NewString())
	payload.Nonce = key // the same for a repetition, which has to be the same message
	plain, err := encode(payload, "")
	if err != nil {
		return Receipt{}, err
	}
	text, err := amp.ASCII(plain)
	if err != nil {
		return Receipt{}, err
	}
	// An idempotency key in any case: a call whose answer is lost can then be repeated safely.
	body := flat{
		To: to, Subject: d.Subject, Priority: cmp.Or(d.Priority, "normal"), Payload: text, InReplyTo: d.InReplyTo,
		ThreadID:       d.ThreadID,
		IdempotencyKey: key,
	}
	if d.Receipt {
		body.Options = map[string]bool{"receipt": true}
	}
	out, err := b.sendSigned(ctx, as, r, d.From, &body)
	if refused := statusOf(err) == http.StatusForbidden &&
		strings.Contains(string(fault.From(err).Code), "signature"); refused && !bytes.Equal(text, bytes.TrimSpace(plain)) {
		body.Payload = plain
		if again, other := b.sendSigned(ctx, as, r, d.From, &body); other == nil {
			out, err = again, nil
		}
	}
	if err != nil {
		// With files a repetition would upload them again, as other attachments: another body.
		if fault.Is(err, Unreachable) && len(d.Files) == 0 {
			e := fault.From(err)
			e.Message += " If it broke off after the message was sent, this does not send it twice: --idempotency-key " +
				body.IdempotencyKey
		}
		return Receipt{}, err
	}
	// From here on they are printed.
	out.ID, out.Status, out.Method = oneLine(out.ID, 128), oneLine(out.Status, 32), oneLine(out.Method, 32)
	out.Error, out.Note = oneLine(out.Error, 600), oneLine(out.Note, 600)
	out.From, out.To = d.From, to
	return out, b.keepSent(r, body, out, payload.Attachments)
}

// sendSigned signs a message as it stands, with a spelling of the agent's address, and sends it.
func (b *Box) sendSigned(ctx context.Context, as *caller, r *Registration, from string, body *flat) (out Receipt, err error) {
	signed := amp.Signed{
		From: []string{from}, To: []string{body.To}, Subject: body.Subject, Priority: body.Priority,
		InReplyTo: body.InReplyTo, Payload: body.Payload,
	}
	if body.Signature, err = signed.Sign(b.keyFor(r)); err != nil {
		return out, err
	}
	return out, as.call(ctx, http.MethodPost, r.route(), body, &out)
}

// keepSent stores a copy under the id that the provider gave the message, since replies refer to it.
func (b *Box) keepSent(r *Registration, body flat, sent Receipt, files []Attachment) error {
	if !amp.IDForm.MatchString(sent.ID) {
		return fault.New(fault.Internal, "%s accepted the message and returned the invalid id %.80q: no copy was stored.",
			r.Provider, sent.ID)
	}
	// Our own clock: the provider's time is not part of its answer.
	now := b.stamp()
	file := map[string]any{
		"id": sent.ID,
		"envelope": Envelope{
			"amp/0.1", sent.ID, sent.From, body.To, body.Subject, body.Priority, now, body.Signature,
			cmp.Or(body.ThreadID, sent.ID), body.InReplyTo, "",
		},
		"payload":  body.Payload,
		"metadata": map[string]any{"status": sent.Status},
		"local": map[string]any{
			"sent_at": now, "status": sent.Status, "delivery_method": sent.Method, "error": sent.Error,
			"security": Security{Trust: Verified, Flags: []string{}, VerifiedAt: now, Files: files},
		},
	}
	return writeJSON(b.messageFile(Sent, body.To, sent.ID), file, 0o600)
}

// maxSubject is the longest subject, in characters.
const maxSubject = 256

// Reply is a draft that answers a message: to its sender, in its thread, with its priority, from the
// address that it was sent to.
func (b *Box) Reply(m *Message, body string) (Draft, error) {
	r, err := b.registrationOf(m)
	if err != nil {
		return Draft{}, err
	}
	subject := m.Envelope.Subject
	// One "Re:" is enough, also for a subject that has one in another spelling.
	if !strings.HasPrefix(strings.ToLower(subject), "re:") {
		subject = "Re: " + subject
	}
	if runes := []rune(subject); len(runes) > maxSubject {
		subject = string(runes[:maxSubject])
	}
	return Draft{
		From: r.Address, To: m.Envelope.From, Subject: subject, Body: body, Type: "response", Priority: m.Envelope.Priority,
		InReplyTo: m.Envelope.ID, ThreadID: cmp.Or(m.Envelope.ThreadID, m.Envelope.ID),
	}, nil
}
