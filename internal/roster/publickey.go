package roster

import (
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Only Ed25519 is supported: it is what the messaging protocol signs with, keys are short, and
// there is one way to verify a signature.

// PublicKey is a key by which others check what an agent has signed. An agent has at most one
// that is not retired; retired ones are kept, since what they signed can still be checked.
type PublicKey struct {
	Algorithm   string     `json:"algorithm"` // Ed25519, always
	Fingerprint string     `json:"fingerprint"`
	PublicKey   string     `json:"public_key"` // as PEM
	AddedAt     time.Time  `json:"added_at"`
	RetiredAt   *time.Time `json:"retired_at"`
}

// ParsePublicKey reads an Ed25519 public key, as PEM or as 64 hex digits. Its errors
// repeat nothing of the text, which may be a private key that was sent by mistake.
func ParsePublicKey(text string) (ed25519.PublicKey, error) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "PRIVATE KEY") {
		return nil, badPublicKey("This is a private key, which nobody but the agent should have. Make its public half with " +
			"`openssl pkey -in FILE -pubout`.")
	}
	block, rest := pem.Decode([]byte(text))
	if block == nil {
		raw, err := hex.DecodeString(text)
		if err != nil || len(raw) != ed25519.PublicKeySize {
			return nil, badPublicKey("This is neither PEM nor 64 hex digits.")
		}
		return raw, nil
	}
	if block.Type != "PUBLIC KEY" || len(rest) > 0 {
		return nil, badPublicKey("The PEM text should hold one PUBLIC KEY and nothing else.")
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, badPublicKey("The PEM text is damaged.")
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, badPublicKey("This key is for another algorithm, such as RSA or ECDSA.")
	}
	return key, nil
}

// badPublicKey adds to a reason what a right key looks like, and never what was sent.
func badPublicKey(why string) error {
	return fault.New(fault.InvalidPayload,
		"%s A public key is an Ed25519 key as PEM, such as \"-----BEGIN PUBLIC KEY-----\\nMCowBQYDK2VwAyEA…\\n-----END "+
			"PUBLIC KEY-----\", or its 32 bytes as 64 hex digits.", why).About("public_key")
}

// Fingerprint names a public key: SHA-256 over its 32 bytes, as the messaging
// protocol has it.
func Fingerprint(key ed25519.PublicKey) string {
	sum := sha256.Sum256(key)
	return "SHA256:" + base64.StdEncoding.EncodeToString(sum[:])
}

// checkUnused makes sure that a key, if there is one, neither belongs nor belonged to another
// agent: a signature must not fit two senders, not even an old one.
func checkUnused(tx *ledger.Tx, agentID string, key ed25519.PublicKey) error {
	if key == nil {
		return nil
	}
	taken, err := exists(tx, "SELECT 1 FROM agent_public_key WHERE fingerprint = $1 AND agent <> $2", Fingerprint(key),
		agentID)
	if err == nil && taken {
		return fault.New(fault.AlreadyExists,
			"The public key %s is or was that of another agent. Make a pair of keys for each "+
				"agent, with `openssl genpkey -algorithm ed25519`.", Fingerprint(key)).About("public_key")
	}
	return err
}

// usePublicKey makes a key, if there is one, the agent's current one, and retires the
// one before.
func usePublicKey(tx *ledger.Tx, by Identity, a Agent, key ed25519.PublicKey) {
	if key == nil {
		return
	}
	fingerprint := Fingerprint(key)
	if i := slices.IndexFunc(a.PublicKeys, func(k PublicKey) bool { return k.RetiredAt == nil }); i >= 0 {
		before := a.PublicKeys[i].Fingerprint
		if before == fingerprint {
			return
		}
		tx.Append(ledger.Event{
			Workspace: a.Workspace, Kind: "public_key.retired", Actor: by.Actor(), Subject: a.ID,
			Body: publicKeyRetired{before},
		})
	}
	tx.Append(ledger.Event{
		Workspace: a.Workspace, Kind: "public_key.added", Actor: by.Actor(), Subject: a.ID,
		Body: publicKeyAdded{fingerprint, key},
	})
}

// addPublicKeys fills in the keys of agents that were read, with one query.
func addPublicKeys(query store.Query, agents []Agent) error {
	type row struct {
		agent string
		PublicKey
	}
	ids, at := make([]any, len(agents)), make(map[string]*Agent, len(agents))
	for i := range agents {
		ids[i], at[agents[i].ID] = agents[i].ID, &agents[i]
	}
	rows, err := store.All(query, func(scan store.Scan) (row, error) {
		k := row{PublicKey: PublicKey{Algorithm: "Ed25519"}}
		var raw []byte
		var added, retired int64
		if err := scan(&k.agent, &k.Fingerprint, &raw, &added, &retired); err != nil {
			return k, err
		}
		k.AddedAt, k.RetiredAt = time.UnixMicro(added).UTC(), store.Moment(retired)
		k.PublicKey.PublicKey = EncodePublicKey(raw)
		return k, nil
	}, "SELECT agent, fingerprint, key, added_at, retired_at FROM agent_public_key WHERE agent IN ("+
		store.Marks(1, len(ids))+") ORDER BY added_at, fingerprint", ids...)
	for _, k := range rows {
		at[k.agent].PublicKeys = append(at[k.agent].PublicKeys, k.PublicKey)
	}
	return err
}
