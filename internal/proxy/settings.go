package proxy

import (
	"context"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// binding is the agent that a provider's key is registered to.
type binding struct{ workspace, name, id string }

// configured is the body of proxy.configured. Its subject is the agent's id.
type configured struct {
	Name string `json:"name"` // of the agent, by which owner looks it up
	Settings
}

// applySettings puts settings in force on this node. Keys that the agent had and has no more stop
// to stand for it, unless another agent has them by now.
func (p *Proxy) applySettings(workspace, agentID string, s configured) {
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

// settingsOf are the settings of an agent by its id, with defaults for one that has none.
func (p *Proxy) settingsOf(agentID string) Settings {
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

// holdTime is how long a call is held under these settings.
func (p *Proxy) holdTime(s Settings) time.Duration {
	if s.HoldSeconds > 0 {
		return time.Duration(s.HoldSeconds) * time.Second
	}
	return p.Hold
}

// Configure replaces an agent's settings. It fails if one of the provider's keys is registered to
// another agent (PRX-7); that is checked in the transaction, so two agents cannot get one key.
func (p *Proxy) Configure(ctx context.Context, by roster.Identity, a roster.Agent, in NewSettings) (Settings, error) {
	s, err := in.check()
	if err != nil {
		return s, err
	}
	err = p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		// One key stands for one agent, in whichever workspace.
		taken, err := store.All(tx.Query, store.Text, "SELECT sum FROM proxy_provider_key WHERE agent <> $1", a.ID)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(s.ProviderKeys, func(sum string) bool { return slices.Contains(taken, sum) }) {
			return fault.New(fault.Conflict,
				"One of these keys is registered to another agent. A key stands for one agent.").About("provider_keys")
		}
		tx.Append(ledger.Event{
			Workspace: a.Workspace, Kind: kindSet, Actor: by.Actor(), Subject: a.ID, Body: configured{a.Name, s},
		})
		return nil
	})
	if err == nil {
		p.applySettings(a.Workspace, a.ID, configured{a.Name, s})
	}
	return s, err
}
