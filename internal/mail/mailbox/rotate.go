package mailbox

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"os"

	"signalbox/internal/fault"
)

// Rotate gives the agent a new pair of keys and announces it to every provider. MSG-94: the new key
// is on disk, as next.pem, before any provider hears of it. If one cannot be reached, both keys
// stay, each for the providers that know it (keyFor), and the next Rotate continues with the same
// new key.
func (b *Box) Rotate(ctx context.Context) error {
	return b.withLock(func() error { return b.rotate(ctx) })
}

// rotate continues a rotation or begins one. Each provider's success is written down before the next
// one is called; the new key replaces the old one when all know it. The caller holds the lock.
func (b *Box) rotate(ctx context.Context) error {
	// A next key that exists is one that some providers know already: use it again.
	if b.next == nil {
		_, fresh, err := ed25519.GenerateKey(nil)
		if err != nil {
			return err
		}
		if err := b.writeKey(nextFile, fresh); err != nil {
			return err
		}
		b.next = fresh
	}
	for i := range b.Registrations {
		r := &b.Registrations[i]
		// This provider was told in an earlier, interrupted rotation.
		if r.Fingerprint == fingerprint(b.next) {
			continue
		}
		if err := b.announceKey(ctx, r); err != nil {
			return err
		}
		r.Fingerprint = fingerprint(b.next)
		if err := b.writeRegistration(r); err != nil {
			return err
		}
	}
	// All providers know the new key. If the process ends between these two steps, the next rotation
	// finds next.pem, tells nobody, and finishes.
	if err := b.writeKey(privateFile, b.next); err != nil {
		return err
	}
	if err := os.Remove(b.keyFile(nextFile)); err != nil {
		return unwritable(err, b.keyFile(nextFile))
	}
	b.key, b.next = b.next, nil
	return b.save()
}

// announceKey proves the new key to a provider with the old one. If that fails, the provider may have
// it already, from a call whose answer was lost; then it is no error.
func (b *Box) announceKey(ctx context.Context, r *Registration) error {
	as := newCaller(r.apiKey)
	pem := publicPEM(b.next)
	var out struct {
		APIKey string `json:"api_key"`
	}
	// The proof is over the PEM text as it is sent, without a line feed: the form that most providers take.
	err := as.call(ctx, http.MethodPost, r.APIURL+"/auth/rotate-keys", map[string]string{
		"new_public_key": pem, "key_algorithm": "Ed25519",
		"proof": base64.StdEncoding.EncodeToString(ed25519.Sign(b.key, []byte(pem))),
	}, &out)
	if err != nil {
		// The old key's proof is refused once the provider has the new key; ask which one it has.
		var me struct{ Fingerprint string }
		if e := as.call(ctx, http.MethodGet, r.APIURL+"/agents/me", nil, &me); e == nil &&
			me.Fingerprint == fingerprint(b.next) {
			return nil
		}
		return err
	}
	// Some providers give a new API key with a new public key.
	if out.APIKey != "" {
		r.apiKey = out.APIKey
	}
	return nil
}

// RotateAPIKeys gets a new API key from every provider. Each is written down before the next provider
// is called. The old ones work for a while (24 hours with ours), so nothing is lost in between.
func (b *Box) RotateAPIKeys(ctx context.Context) error {
	return b.withLock(func() error { return b.rotateAPIKeys(ctx) })
}

// rotateAPIKeys replaces the API keys; the caller holds the lock.
func (b *Box) rotateAPIKeys(ctx context.Context) error {
	for i := range b.Registrations {
		r := &b.Registrations[i]
		var out struct {
			APIKey string `json:"api_key"`
		}
		if err := newCaller(r.apiKey).call(ctx, http.MethodPost, r.APIURL+"/auth/rotate-key", nil, &out); err != nil {
			return err
		}
		if out.APIKey == "" {
			return fault.New(fault.Internal, "%s did not return an API key.", r.Provider)
		}
		r.apiKey = out.APIKey
		if err := b.writeRegistration(r); err != nil {
			return err
		}
	}
	return nil
}
