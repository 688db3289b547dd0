package roster

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"signalbox/internal/fault"
)

// KeyKind says which protocol a key was made for. It decides the key's form and nothing else:
// all keys of an agent authenticate the same agent, everywhere.
type KeyKind string

// The kinds of keys.
const (
	SignalKey   KeyKind = "signal"
	MailKey     KeyKind = "mail"
	OperatorKey KeyKind = "operator"
	OwnerKey    KeyKind = "owner"
)

// holder is the kind of those who have such keys.
func (k KeyKind) holder() HolderKind {
	switch k {
	case OperatorKey:
		return HolderOperator
	case OwnerKey:
		return HolderOwner
	default:
		return HolderAgent
	}
}

// AgentKeyKinds are the kinds an agent can have.
var AgentKeyKinds = []string{string(SignalKey), string(MailKey)}

// newSecret draws a key in the form that its protocol prescribes. Each has at least 160 bits
// of randomness, so a plain SHA-256 is enough to store it.
func newSecret(kind KeyKind) string {
	switch kind {
	case MailKey:
		raw := make([]byte, 32)
		_, _ = rand.Read(raw) // never fails
		return "amp_live_sk_" + hex.EncodeToString(raw)
	case OperatorKey:
		return "sbx_op_" + base36(40)
	case OwnerKey:
		return "uk_" + base36(40)
	default:
		return "rs-amp-" + base36(32)
	}
}

// keyForms are the forms of newSecret.
var keyForms = regexp.MustCompile(`rs-amp-[0-9a-z]{32}|amp_live_sk_[0-9a-f]{64}|(sbx_op|uk)_[0-9a-z]{40}`)

// HasKey reports whether a text contains what has the form of a key.
func HasKey(text string) bool { return keyForms.MatchString(text) }

// base36 draws n characters of 0-9a-z, each equally likely: bytes of 252 and more, which would
// favour the first characters, are drawn again.
func base36(n int) string {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyz"
	out := make([]byte, 0, n)
	var raw [64]byte
	for {
		_, _ = rand.Read(raw[:]) // never fails
		for _, b := range raw {
			if len(out) == n {
				return string(out)
			}
			if int(b) < 256/36*36 {
				out = append(out, digits[int(b)%36])
			}
		}
	}
}

// hashSecret is how keys are stored and looked up. A slow hash is not needed: keys are random,
// not chosen by people.
func hashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// hint is enough to recognise a key in a list: its prefix and its last four.
func hint(secret string) string {
	i := strings.LastIndexAny(secret[:len(secret)-5], "-_")
	return secret[:i+1] + "…" + secret[len(secret)-4:]
}

// agentKeyKind reads a kind of key that agents can have.
func agentKeyKind(s string) (KeyKind, error) {
	switch k := KeyKind(s); k {
	case SignalKey, MailKey:
		return k, nil
	}
	return "", fault.New(fault.InvalidPayload, "An agent cannot have a key of the kind %q. %s", s,
		fault.DidYouMean(s, AgentKeyKinds)).About("kind")
}
