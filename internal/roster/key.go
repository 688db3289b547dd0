package roster

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"signalbox/internal/fault"
)

// KeyKind says what a key is for. It decides only the key's form: an agent's keys
// all stand for the same agent.
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

// newSecret makes a key of the form that its protocol gives it.
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

// base36 draws n characters of 0-9a-z. Bytes that would make some characters more
// likely than others are drawn again.
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

func hashSecret(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}

// hint is enough to recognise a key in a list: its prefix and its last four.
func hint(secret string) string {
	i := strings.LastIndexAny(secret[:len(secret)-5], "-_")
	return secret[:i+1] + "…" + secret[len(secret)-4:]
}

func agentKeyKind(s string) (KeyKind, error) {
	switch k := KeyKind(s); k {
	case SignalKey, MailKey:
		return k, nil
	}
	return "", fault.New(fault.InvalidPayload, "%q is no kind of key that an agent can have. %s", s,
		fault.DidYouMean(s, AgentKeyKinds)).About("kind")
}
