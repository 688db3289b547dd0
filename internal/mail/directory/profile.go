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

// Profile is what an agent says of itself and of how it wants its mail. It is the body of
// profile.changed, so what is secret in it is sealed.
type Profile struct {
	Alias        string               `json:"alias,omitzero"`
	WebhookURL   string               `json:"webhook_url,omitzero"`
	Secret       []byte               `json:"secret,omitzero"`           // sealed; the one we derive when empty
	PreferSocket *bool                `json:"prefer_websocket,omitzero"` // true when absent
	Metadata     wire.Raw             `json:"metadata,omitzero"`
	Capabilities []string             `json:"capabilities,omitempty"`
	Policy       *CommunicationPolicy `json:"communication_policy,omitzero"`
}

// WebhookFirst reports whether a webhook is called although the agent has a socket.
func (p Profile) WebhookFirst() bool { return p.PreferSocket != nil && !*p.PreferSocket }

const (
	maxAlias        = 255
	maxMetadata     = 16 << 10
	maxURL          = 2000
	maxSecret       = 256
	maxCapabilities = 64
	maxAllowed      = 1000
)

// change reads what a request says of a profile. What it does not mention stays.
func (d *Directory) change(ctx context.Context, f *amp.Fields, agentID string, p Profile) (Profile, error) {
	if f.Has("alias") {
		p.Alias = f.Text("alias", maxAlias)
	}
	if f.Has("metadata") {
		raw, _ := f.Get("metadata")
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

func (d *Directory) changeDelivery(ctx context.Context, f *amp.Fields, agentID string, p *Profile) error {
	if f.Has("prefer_websocket") {
		p.PreferSocket = f.Flag("prefer_websocket")
	}
	if f.Has("webhook_secret") {
		p.Secret = nil
		if secret := f.Text("webhook_secret", maxSecret); secret != "" {
			p.Secret = d.seal(agentID, secret)
		}
	}
	if !f.Has("webhook_url") {
		return nil
	}
	if p.WebhookURL = f.Text("webhook_url", maxURL); p.WebhookURL == "" {
		return nil
	}
	if bad := d.core.Outbox.CheckTarget(ctx, p.WebhookURL); bad != nil {
		e := fault.From(bad)
		return fault.Wrap(e.Cause, fault.InvalidField, "%s", e.Message).About("delivery.webhook_url")
	}
	u, err := url.Parse(p.WebhookURL)
	if err != nil {
		return err // CheckTarget has read it
	}
	if !amp.Confidential(u) {
		f.Fail("webhook_url", "should begin with https://, so that nobody on the way reads what is sent.")
	}
	return nil
}

// seal hides a secret from who reads the ledger.
func (d *Directory) seal(agentID, secret string) []byte {
	box := d.box()
	nonce := make([]byte, box.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	return box.Seal(nonce, nonce, []byte(secret), []byte(agentID))
}

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

// Secret is the secret that signs an agent's webhook calls.
func (d *Directory) Secret(workspace, agentID string, p Profile) (wire.Secret, error) {
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

func appendProfile(tx *ledger.Tx, actor roster.Identity, workspace, agentID string, p Profile) {
	tx.Append(ledger.Event{Workspace: workspace, Kind: kindProfile, Actor: actor.Actor(), Subject: agentID, Body: p})
}
