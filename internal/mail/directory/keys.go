package directory

import (
	"context"
	"crypto/ed25519"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// The answers about keys.
type (
	// RotatedKey is the answer to a new API key. The old one is good until ValidUntil.
	RotatedKey struct {
		APIKey     string  `json:"api_key"`
		ExpiresAt  *string `json:"expires_at"` // always null: keys do not expire
		ValidUntil string  `json:"previous_key_valid_until"`
	}
	// RotatedKeys is the answer to a new public key. The API key stays.
	RotatedKeys struct {
		Rotated      bool   `json:"rotated"`
		Fingerprint  string `json:"fingerprint"`
		Address      string `json:"address"`
		PublicKey    string `json:"public_key"`
		KeyAlgorithm string `json:"key_algorithm"`
	}
	// RevokedKey is the answer to a revoked API key.
	RevokedKey struct {
		Revoked   bool   `json:"revoked"`
		RevokedAt string `json:"revoked_at"`
	}
)

// RotateKey replaces the API key that the call was made with. The old one works for 24 hours, so
// that the agent can store the new one.
func (d *Directory) RotateKey(ctx context.Context, who roster.Identity) (RotatedKey, error) {
	issued, err := d.core.Roster.RotateKey(ctx, who, who.KeyID)
	if err != nil {
		return RotatedKey{}, err
	}
	return RotatedKey{APIKey: issued.Secret, ValidUntil: amp.Stamp(issued.Key.IssuedAt.Add(roster.Grace))}, nil
}

// RotateKeys replaces the public key of the calling agent. The proof is a signature of the old
// key (MSG-21): a stolen API key is not enough to take over an identity.
func (d *Directory) RotateKeys(ctx context.Context, who roster.Identity, body []byte) (RotatedKeys, error) {
	fresh, proved, err := readRotation(who, body)
	if err != nil {
		return RotatedKeys{}, err
	}
	// An agent cannot go back to a key that it has given up.
	if err := d.CheckRevoked(ctx, fresh); err != nil {
		return RotatedKeys{}, err
	}
	// Roster.Write also drops the cached identity, so that the next call is verified with the new key.
	err = d.core.Roster.Write(ctx, func(tx *ledger.Tx) error {
		a, err := d.core.Roster.AgentIn(tx, who.Workspace, who.ID)
		if err != nil {
			return err
		}
		// who was read before the transaction: another rotation may have been faster.
		if currentKey(a) != roster.Fingerprint(who.PublicKey) {
			return fault.New(fault.Conflict, "Another rotation replaced the key in the meantime. Sign with the current key.")
		}
		return d.replaceKey(tx, who, a, fresh, proved)
	})
	// Another agent has this key: two agents with one key could sign for each other.
	if e := fault.From(err); err != nil && e.Code == fault.AlreadyExists {
		return RotatedKeys{}, fault.New(fault.KeyAlreadyRegistered, "%s", e.Message).About("new_public_key")
	}
	if err != nil {
		return RotatedKeys{}, err
	}
	return RotatedKeys{true, roster.Fingerprint(fresh), who.Address, amp.KeyText(fresh), "Ed25519"}, nil
}

// readRotation reads a new public key, and checks the proof of the current one, which is kept for those who know the
// old key. An empty body is
// refused: another server makes the keys itself then, and private keys belong to agents.
func readRotation(who roster.Identity, body []byte) (ed25519.PublicKey, *amp.Rotation, error) {
	if len(body) == 0 {
		return nil, nil, fault.New(fault.MissingField,
			"The field \"new_public_key\" is missing. Make a pair of keys "+
				"yourself, and send the public one.").About("new_public_key")
	}
	f, err := amp.ReadFields(body)
	if err != nil {
		return nil, nil, err
	}
	sent := f.Required("new_public_key", 4096, "an Ed25519 key as PEM")
	if algorithm := f.Text("key_algorithm", 32); !isEd25519(algorithm) {
		f.Fail("key_algorithm", "should be \"Ed25519\", and is %.40q.", algorithm)
	}
	proof := f.Required("proof", 256, "a signature of the current key over the new one, in base64")
	if f.Err != nil {
		return nil, nil, f.Err
	}
	fresh, err := roster.ParsePublicKey(sent)
	if err != nil {
		return nil, nil, fault.New(fault.InvalidField, "%s", fault.From(err).Message).About("new_public_key")
	}
	// An agent without a public key, which an operator added, gets its first one by registering.
	if who.PublicKey == nil || !amp.Proves(who.PublicKey, fresh, sent, proof) {
		return nil, nil, fault.New(fault.SignatureInvalid,
			"The proof is not a signature of the agent's current key over the new public key as it is sent.").About("proof")
	}
	return fresh, &amp.Rotation{Old: who.PublicKey, New: fresh, Sent: sent, Proof: proof}, nil
}

// RevokeKey revokes the API key that the call was made with, at once. The agent's other keys and
// its queue stay.
func (d *Directory) RevokeKey(ctx context.Context, who roster.Identity) (RevokedKey, error) {
	k, err := d.core.Roster.RevokeKey(ctx, who, who.KeyID)
	if err != nil {
		return RevokedKey{}, err
	}
	return RevokedKey{true, amp.Stamp(*k.RevokedAt)}, nil
}
