package roster

import "signalbox/internal/fault"

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
