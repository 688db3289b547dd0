package directory

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"
	"net/url"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// Profile is what an agent sets about itself and about the delivery of its mail. It is made with
// the registration, changed as a whole by every PATCH, and ends with the agent. It is the body of
// profile.changed, which operators can read, so the webhook's secret in it is sealed.
type Profile struct {
	Alias        string `json:"alias,omitzero"`
	WebhookURL   string `json:"webhook_url,omitzero"`
	Secret       []byte `json:"secret,omitzero"`           // sealed; empty: derived from our key
	PreferSocket *bool  `json:"prefer_websocket,omitzero"` // nil is true
	// Metadata is the agent's own. It is kept in the ledger, and no call returns it.
	Metadata     wire.Raw             `json:"metadata,omitzero"`
	Capabilities []string             `json:"capabilities,omitempty"`
	Policy       *CommunicationPolicy `json:"communication_policy,omitzero"`
}

// WebhookFirst reports whether the webhook is called even if the agent has a socket (MSG-67).
func (p Profile) WebhookFirst() bool { return p.PreferSocket != nil && !*p.PreferSocket }

// The limits of a profile, in characters, bytes or items.
const (
	maxAlias        = 255
	maxMetadata     = 16 << 10
	maxURL          = 2000
	maxSecret       = 256
	maxCapabilities = 64
	maxAllowed      = 1000
)

// change is the profile p with the members that a request names. It stores nothing.
func (d *Directory) change(ctx context.Context, f *amp.Fields, agentID string, p Profile) (Profile, error) {
	if f.Has("alias") {
		p.Alias = f.Text("alias", maxAlias)
	}
	if f.Has("metadata") {
		// null and an absent value are the same here: no metadata.
		raw, ok := f.Get("metadata")
		if !ok {
			raw = nil
		}
		if len(raw) > maxMetadata || len(raw) > 0 && raw.Kind() != '{' {
			f.Fail("metadata", "should be an object of at most %d bytes.", maxMetadata)
		}
		p.Metadata = raw
	}
	if f.Has("capabilities") {
		p.Capabilities = f.Texts("capabilities", maxCapabilities, 64)
	}
	if f.Has("communication_policy") {
		p.Policy = readPolicy(f)
	}
	if delivery := f.Object("delivery"); delivery != nil {
		if err := d.changeDelivery(ctx, delivery, agentID, &p); err != nil {
			return p, err
		}
		f.Join(delivery)
	}
	return p, f.Err
}

// readPolicy reads a communication policy, nil if it is null.
func readPolicy(f *amp.Fields) *CommunicationPolicy {
	part := f.Object("communication_policy")
	if part == nil {
		return nil
	}
	p := &CommunicationPolicy{
		Mode:              part.Required("mode", 16, "\"open\" or \"restricted\""),
		AllowedRecipients: part.Texts("allowed_recipients", maxAllowed, amp.MaxAddress),
	}
	if p.Mode != "" && p.Mode != "open" && p.Mode != "restricted" {
		part.Fail("mode", "should be \"open\" or \"restricted\", and is %.40q.", p.Mode)
	}
	f.Join(part)
	return p
}

// changeDelivery reads the member delivery. MSG-66: a webhook's address is resolved and checked now,
// and again whenever it is called.
func (d *Directory) changeDelivery(ctx context.Context, f *amp.Fields, agentID string, p *Profile) error {
	if f.Has("prefer_websocket") {
		p.PreferSocket = f.Flag("prefer_websocket")
	}
	// An empty or null secret returns to the derived one.
	if f.Has("webhook_secret") {
		p.Secret = nil
		if secret := f.Text("webhook_secret", maxSecret); secret != "" {
			p.Secret = d.seal(agentID, secret)
		}
	}
	if !f.Has("webhook_url") {
		return nil
	}
	// An empty or null address ends the calls.
	if p.WebhookURL = f.Text("webhook_url", maxURL); p.WebhookURL == "" {
		return nil
	}
	if bad := d.core.Outbox.CheckTarget(ctx, p.WebhookURL); bad != nil {
		e := fault.From(bad)
		return fault.Wrap(e.Cause, fault.InvalidField, "%s", e.Message).About("delivery.webhook_url")
	}
	u, err := url.Parse(p.WebhookURL)
	if err != nil {
		return err // cannot happen: CheckTarget has parsed it
	}
	// After CheckTarget, which has refused private addresses that no operator allowed.
	if !amp.Confidential(u) {
		f.Fail("webhook_url", "should begin with https://, so that nobody on the way reads what is sent.")
	}
	return nil
}

// seal encrypts a secret for the ledger, bound to the agent: a sealed secret that is copied to
// another profile cannot be opened.
func (d *Directory) seal(agentID, secret string) []byte {
	box := d.box()
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return box.Seal(nonce, nonce, []byte(secret), []byte(agentID))
}

// box is the cipher of seal, with a key derived from the core's.
func (d *Directory) box() cipher.AEAD {
	block, err := aes.NewCipher(d.core.Derive("signalbox mail sealing"))
	if err != nil {
		panic(err) // 32 bytes are a key
	}
	box, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // AES has the right size
	}
	return box
}

// Secret is the secret that signs the calls to an agent's webhook: its own, or one derived from
// the core's key. It fails if the server's key is not the one that sealed it.
func (d *Directory) Secret(workspace, agentID string, p Profile) (wire.Secret, error) {
	// The derived secret is the same for as long as the key of the server is.
	if len(p.Secret) == 0 {
		return d.core.Outbox.SecretFor(workspace, agentID, 0), nil
	}
	box := d.box()
	if len(p.Secret) < box.NonceSize() {
		return wire.Secret{}, fmt.Errorf("the webhook secret of %s is cut off", agentID)
	}
	plain, err := box.Open(nil, p.Secret[:box.NonceSize()], p.Secret[box.NonceSize():], []byte(agentID))
	if err != nil {
		return wire.Secret{}, fmt.Errorf("the webhook secret of %s was sealed with another key: %w", agentID, err)
	}
	return wire.NewSecret(string(plain)), nil
}

// appendProfile appends profile.changed, the whole profile as it is from now on.
func appendProfile(tx *ledger.Tx, actor roster.Identity, workspace, agentID string, p Profile) (seq int64) {
	return tx.Append(ledger.Event{Workspace: workspace, Kind: kindProfile, Actor: actor.Actor(), Subject: agentID, Body: p})
}
