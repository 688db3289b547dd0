package mail

import (
	"net/http"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The answers about keys.
type (
	// RotatedKey is an API key in place of another.
	RotatedKey struct {
		APIKey     string  `json:"api_key"`
		ExpiresAt  *string `json:"expires_at"` // never
		ValidUntil string  `json:"previous_key_valid_until"`
	}
	// RotatedKeys is a public key in place of another.
	RotatedKeys struct {
		Rotated      bool   `json:"rotated"`
		Fingerprint  string `json:"fingerprint"`
		Address      string `json:"address"`
		PublicKey    string `json:"public_key"`
		KeyAlgorithm string `json:"key_algorithm"`
	}
	// RevokedKey is an API key that is refused from now on.
	RevokedKey struct {
		Revoked   bool   `json:"revoked"`
		RevokedAt string `json:"revoked_at"`
	}
)

func (m *Mail) postRotateKey(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	issued, err := m.core.Roster.RotateKey(r.Context(), who, who.KeyID)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, RotatedKey{APIKey: issued.Secret, ValidUntil: amp.Stamp(issued.Key.IssuedAt.Add(roster.Grace))})
}

// postRotateKeys replaces the public key. The proof is the old key's: who has stolen an
// API key has not stolen the identity.
func (m *Mail) postRotateKeys(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	if len(body) == 0 {
		return fault.New(fault.MissingField, "The field \"new_public_key\" is missing. Make a pair of keys yourself, and send the public one.").About("new_public_key")
	}
	f, err := amp.ReadFields(body)
	if err != nil {
		return err
	}
	sent := f.Required("new_public_key", 4096, "an Ed25519 key as PEM")
	if algorithm := f.Text("key_algorithm", 32); algorithm != "" && !strings.EqualFold(algorithm, "Ed25519") {
		f.Fail("key_algorithm", "should be \"Ed25519\", and is %.40q.", algorithm)
	}
	proof := f.Required("proof", 256, "a signature of the current key over the new one, in base64")
	if f.Err != nil {
		return f.Err
	}
	fresh, err := roster.ParsePublicKey(sent)
	if err != nil {
		return fault.New(fault.InvalidField, "%s", fault.From(err).Message).About("new_public_key")
	}
	if who.PublicKey == nil || !amp.Proves(who.PublicKey, fresh, sent, proof) {
		return fault.New(fault.SignatureInvalid, "The proof is not a signature of the agent's current key over the new public key as it is sent.").About("proof")
	}
	if err := m.checkRevoked(r.Context(), fresh); err != nil {
		return err
	}
	err = m.core.Roster.Write(r.Context(), func(tx *ledger.Tx) error {
		a, err := m.core.Roster.AgentIn(tx, who.Workspace, who.ID)
		if err != nil {
			return err
		}
		if currentKey(a) != roster.Fingerprint(who.PublicKey) {
			return fault.New(fault.Conflict, "The key was changed at the same moment. Sign with the one that is current now.")
		}
		return m.replaceKey(tx, who, a, fresh)
	})
	if e := fault.From(err); err != nil && e.Code == fault.AlreadyExists {
		return fault.New(fault.KeyAlreadyRegistered, "%s", e.Message).About("new_public_key")
	}
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, RotatedKeys{true, roster.Fingerprint(fresh), who.Address, amp.KeyText(fresh), "Ed25519"})
}

func (m *Mail) deleteKey(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	k, err := m.core.Roster.RevokeKey(r.Context(), who, who.KeyID)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, RevokedKey{true, amp.Stamp(*k.RevokedAt)})
}
