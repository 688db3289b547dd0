package proxy

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
)

// The providers.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
)

// Providers lists the providers.
var Providers = []string{Anthropic, OpenAI}

// The modes in which a call waits for a decision.
const (
	ModeHold  = "hold"  // the call is held open
	ModeAsync = "async" // it is answered with 202 at once, and sent again after the decision
)

// Settings are how the calls of one agent are treated.
type Settings struct {
	Mode string `json:"mode"`
	// SoftReject answers a rejected call with a message that says why, instead of an error.
	SoftReject bool `json:"soft_reject"`
	// HoldSeconds is how long a call is held at the most; 0 is the server's own.
	HoldSeconds int `json:"hold_seconds"`
	// ProviderKeys are SHA-256 sums, in hex, of provider's keys that stand for this agent.
	ProviderKeys []string `json:"provider_keys"`
}

// NewSettings replaces an agent's settings.
type NewSettings struct {
	Mode         string   `json:"mode,omitempty"`
	SoftReject   bool     `json:"soft_reject,omitempty"`
	HoldSeconds  int      `json:"hold_seconds,omitempty"`
	ProviderKeys []string `json:"provider_keys,omitempty"`
}

const maxHold = 24 * 60 * 60 // seconds

func (in *NewSettings) check() (s Settings, err error) {
	s = Settings{Mode: in.Mode, SoftReject: in.SoftReject, HoldSeconds: in.HoldSeconds, ProviderKeys: []string{}}
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

// KeySum is the SHA-256, in hex, by which a provider's key is registered to an agent.
func KeySum(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// ProviderKey is a key of the vault as it is listed.
type ProviderKey struct {
	Provider  string    `json:"provider"`
	Workspace string    `json:"workspace,omitempty"` // "" for all that have none of their own
	Hint      string    `json:"hint"`
	SetAt     time.Time `json:"set_at"`
	Readable  bool      `json:"readable"` // false when the vault was encrypted with another key
}

// ProviderKeys lists the vault.
type ProviderKeys struct {
	Keys []ProviderKey `json:"keys"`
}

// NewProviderKey is a key for the vault.
type NewProviderKey struct {
	Key       string `json:"key"`
	Workspace string `json:"workspace,omitempty"`
}

// check trims the key, and says what is wrong with it.
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
