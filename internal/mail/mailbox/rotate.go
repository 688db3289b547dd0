package mailbox

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"
	"os"

	"signalbox/internal/fault"
)

// Rotate gives the agent a new pair of keys, and tells every provider. The new key is on
// disk before anybody hears of it. When a provider cannot be told, both keys stay, each
// for the providers that know it, and the next call goes on from there.
func (b *Box) Rotate(ctx context.Context) error {
	return b.alone(func() error { return b.rotate(ctx) })
}

func (b *Box) rotate(ctx context.Context) error {
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
		if r.Fingerprint == fingerprint(b.next) {
			continue
		}
		if err := b.announce(ctx, r); err != nil {
			return err
		}
		r.Fingerprint = fingerprint(b.next)
		if err := b.writeRegistration(r); err != nil {
			return err
		}
	}
	if err := b.writeKey(privateFile, b.next); err != nil {
		return err
	}
	if err := os.Remove(b.keyFile(nextFile)); err != nil {
		return unwritable(err, b.keyFile(nextFile))
	}
	b.key, b.next = b.next, nil
	return b.save()
}

// announce tells a provider of the new key. It may know it from a call before whose
// answer was lost.
func (b *Box) announce(ctx context.Context, r *Registration) error {
	as := newCaller(r.apiKey)
	pem := publicPEM(b.next)
	var out struct {
		APIKey string `json:"api_key"`
	}
	err := as.call(ctx, http.MethodPost, r.APIURL+"/auth/rotate-keys", map[string]string{
		"new_public_key": pem, "key_algorithm": "Ed25519",
		"proof": base64.StdEncoding.EncodeToString(ed25519.Sign(b.key, []byte(pem))),
	}, &out)
	if err != nil {
		var me struct{ Fingerprint string }
		if e := as.call(ctx, http.MethodGet, r.APIURL+"/agents/me", nil, &me); e == nil &&
			me.Fingerprint == fingerprint(b.next) {
			return nil
		}
		return err
	}
	if out.APIKey != "" {
		r.apiKey = out.APIKey
	}
	return nil
}

// RotateAPIKeys gets a new API key from every provider. The old ones work for some time.
func (b *Box) RotateAPIKeys(ctx context.Context) error {
	return b.alone(func() error { return b.rotateAPIKeys(ctx) })
}

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
			return fault.New(fault.Internal, "%s answers, and not with a key.", r.Provider)
		}
		r.apiKey = out.APIKey
		if err := b.writeRegistration(r); err != nil {
			return err
		}
	}
	return nil
}
