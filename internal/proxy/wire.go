package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
)

// The providers, as rules, paths and the vault name them.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
)

// Providers lists all providers.
var Providers = []string{Anthropic, OpenAI}

// The modes in which a call waits for a decision.
const (
	ModeHold  = "hold"  // the call is held open until the decision (PRX-25)
	ModeAsync = "async" // the call is answered 202 at once, and the client sends it again (PRX-37)
)

// Settings are how the proxy treats the calls of one agent. Operators set them (Configure); they hold
// until they are set again. An agent that has none gets the defaults: hold, hard rejections, the
// server's hold time.
type Settings struct {
	Mode string `json:"mode"`
	// SoftReject answers a rejected call with a message that says why, instead of an error (PRX-35).
	SoftReject bool `json:"soft_reject"`
	// Feedback tells the model of a rejection, as the error result of its tool call, and answers the
	// call with what the model says then (PRX-52).
	Feedback bool `json:"feedback"`
	// HoldSeconds is how long a call is held at most; 0 is the server's default.
	HoldSeconds int `json:"hold_seconds"`
	// ProviderKeys are the SHA-256, in hex, of provider's keys whose calls are this agent's (PRX-4).
	ProviderKeys []string `json:"provider_keys"`
}

// NewSettings is the body of PUT /ops/agents/{name}/proxy. It replaces all settings of the agent.
type NewSettings struct {
	Mode         string   `json:"mode,omitempty"`
	SoftReject   bool     `json:"soft_reject,omitempty"`
	Feedback     bool     `json:"feedback,omitempty"`
	HoldSeconds  int      `json:"hold_seconds,omitempty"`
	ProviderKeys []string `json:"provider_keys,omitempty"`
}

// maxHold is the longest hold_seconds: a gate does not wait longer either, unless its rule says so.
const maxHold = 24 * 60 * 60

// check makes settings with defaults of what an operator sent, or says what is wrong with it.
func (in *NewSettings) check() (s Settings, err error) {
	s = Settings{
		Mode: in.Mode, SoftReject: in.SoftReject, Feedback: in.Feedback, HoldSeconds: in.HoldSeconds,
		ProviderKeys: []string{},
	}
	if s.Mode == "" {
		s.Mode = ModeHold
	}
	if s.Mode != ModeHold && s.Mode != ModeAsync {
		return s, fault.New(fault.InvalidPayload, "The mode should be %s or %s, and is %.40q.", ModeHold, ModeAsync,
			s.Mode).About("mode")
	}
	if s.HoldSeconds < 0 || s.HoldSeconds > maxHold {
		return s, fault.New(fault.InvalidPayload,
			"hold_seconds should be from 1 to %d, or 0 for the server's own, and is %d.", maxHold,
			s.HoldSeconds).About("hold_seconds")
	}
	for _, sum := range in.ProviderKeys {
		sum = strings.ToLower(strings.TrimPrefix(sum, "sha256:"))
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return s, fault.New(fault.InvalidPayload,
				"A provider's key is registered by its SHA-256 in hex, 64 characters, and never as it is. `signalbox proxy agent "+
					"NAME --provider-key-file FILE` makes it.").About("provider_keys")
		}
		if !slices.Contains(s.ProviderKeys, sum) {
			s.ProviderKeys = append(s.ProviderKeys, sum)
		}
	}
	return s, nil
}

// ProviderKey is a key of the vault as it is listed: everything but the key.
type ProviderKey struct {
	Provider  string    `json:"provider"`
	Workspace string    `json:"workspace,omitempty"` // "" for all that have none of their own
	Hint      string    `json:"hint"`
	SetAt     time.Time `json:"set_at"`
	Readable  bool      `json:"readable"` // false if it was encrypted with another vault.key
}

// ProviderKeys is the answer to the calls about the vault: the list of keys.
type ProviderKeys struct {
	Keys []ProviderKey `json:"keys"`
}

// NewProviderKey is the body of PUT /ops/proxy/keys/{provider}.
type NewProviderKey struct {
	Key       string `json:"key"`
	Workspace string `json:"workspace,omitempty"`
}

// check trims the key and refuses what cannot be a provider's, most of all a key of Signalbox, which a
// person may paste by mistake and which would then be sent to the provider.
func (n *NewProviderKey) check() error {
	n.Key = strings.TrimSpace(n.Key)
	if n.Key == "" || len(n.Key) > 4096 || strings.ContainsFunc(n.Key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return fault.New(fault.InvalidPayload,
			"The key should be one word of printable characters, such as sk-ant-….").About("key")
	}
	if isAgentKey(n.Key) {
		return fault.New(fault.InvalidPayload,
			"This is a key of Signalbox. The vault takes the key that the provider has given you.").About("key")
	}
	return nil
}
