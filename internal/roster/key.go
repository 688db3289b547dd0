package roster

import (
	"crypto/sha256"
	"encoding/hex"

	"signalbox/internal/fault"
)

// KeySum is the SHA-256, in hex, by which a provider's key is registered to an agent.
func KeySum(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

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

// agentKeyKind reads a kind of key that agents can have.
func agentKeyKind(s string) (KeyKind, error) {
	switch k := KeyKind(s); k {
	case SignalKey, MailKey:
		return k, nil
	}
	return "", fault.New(fault.InvalidPayload, "An agent cannot have a key of the kind %q. %s", s,
		fault.DidYouMean(s, AgentKeyKinds)).About("kind")
}
