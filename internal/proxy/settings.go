package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

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

// binding is the agent that a provider's key stands for.
type binding struct{ workspace, name, id string }

// configured is the body of the entry.
type configured struct {
	Name string `json:"name"`
	Settings
}

// KeySum is by what a provider's key is registered to an agent.
func KeySum(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

const maxHold = 24 * 60 * 60 // seconds

func (in *NewSettings) check() (s Settings, err error) {
	s = Settings{Mode: in.Mode, SoftReject: in.SoftReject, HoldSeconds: in.HoldSeconds, ProviderKeys: []string{}}
	if s.Mode == "" {
		s.Mode = ModeHold
	}
	if s.Mode != ModeHold && s.Mode != ModeAsync {
		return s, fault.New(fault.InvalidPayload, "The mode should be %s or %s, and is %.40q.", ModeHold, ModeAsync, s.Mode).About("mode")
	}
	if s.HoldSeconds < 0 || s.HoldSeconds > maxHold {
		return s, fault.New(fault.InvalidPayload, "hold_seconds should be from 1 to %d, or 0 for the server's own, and is %d.", maxHold, s.HoldSeconds).About("hold_seconds")
	}
	for _, sum := range in.ProviderKeys {
		sum = strings.ToLower(strings.TrimPrefix(sum, "sha256:"))
		if raw, err := hex.DecodeString(sum); err != nil || len(raw) != sha256.Size {
			return s, fault.New(fault.InvalidPayload, "A provider's key is registered by its SHA-256 in hex, 64 characters, and never as it is. `signalbox proxy agent NAME --provider-key-file FILE` makes it.").About("provider_keys")
		}
		if !slices.Contains(s.ProviderKeys, sum) {
			s.ProviderKeys = append(s.ProviderKeys, sum)
		}
	}
	return s, nil
}

// use puts settings in force.
func (p *Proxy) use(workspace, agentID string, s configured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, sum := range p.settings[agentID].ProviderKeys {
		if p.owners[sum].id == agentID {
			delete(p.owners, sum)
		}
	}
	p.settings[agentID] = s.Settings
	for _, sum := range s.ProviderKeys {
		p.owners[sum] = binding{workspace, s.Name, agentID}
	}
}

// of are the settings of an agent.
func (p *Proxy) of(agentID string) Settings {
	p.mu.RLock()
	defer p.mu.RUnlock()
	s := p.settings[agentID]
	if s.Mode == "" {
		s.Mode = ModeHold
	}
	if s.ProviderKeys == nil {
		s.ProviderKeys = []string{}
	}
	return s
}

// hold is how long a call of the agent is held at the most.
func (p *Proxy) hold(s Settings) time.Duration {
	if s.HoldSeconds > 0 {
		return time.Duration(s.HoldSeconds) * time.Second
	}
	return p.Hold
}

// Set replaces an agent's settings.
func (p *Proxy) Set(ctx context.Context, by roster.Identity, a roster.Agent, in NewSettings) (Settings, error) {
	s, err := in.check()
	if err != nil {
		return s, err
	}
	err = p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		// One key stands for one agent, in whichever workspace.
		rows, err := tx.Query("SELECT sum FROM proxy_provider_key WHERE agent <> $1", a.ID)
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var sum string
			if err := rows.Scan(&sum); err != nil {
				return err
			}
			if slices.Contains(s.ProviderKeys, sum) {
				return fault.New(fault.Conflict, "One of these keys is registered to another agent. A key stands for one agent.").About("provider_keys")
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		tx.Append(ledger.Event{Workspace: a.Workspace, Kind: kindSet, Actor: by.Actor(), Subject: a.ID, Body: configured{a.Name, s}})
		return nil
	})
	if err == nil {
		p.use(a.Workspace, a.ID, configured{a.Name, s})
	}
	return s, err
}

func (p *Proxy) getSettings(w http.ResponseWriter, r *http.Request) error {
	a, err := p.core.Roster.PathAgent(r)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, p.of(a.ID))
}

func (p *Proxy) putSettings(w http.ResponseWriter, r *http.Request) error {
	var in NewSettings
	if err := wire.ReadJSON(w, r, 1<<20, &in); err != nil {
		return err
	}
	a, err := p.core.Roster.PathAgent(r)
	if err != nil {
		return err
	}
	s, err := p.Set(r.Context(), roster.From(r.Context()), a, in)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, s)
}
