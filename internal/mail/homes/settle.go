package homes

import (
	"context"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

const (
	// refresh is how often a host reads what was decided, if nobody tells it to.
	refresh = 30 * time.Second
	// retry is the first pause after a registrar did not answer, and the longest one.
	retry, mostRetry = 500 * time.Millisecond, 10 * time.Second
	// unused is how old a reservation without an agent is when it is released: the registration is over by then.
	unused = time.Minute
)

// Run keeps this host and the registrar in agreement until ctx ends: it claims what is not claimed, reads what was
// decided, and suspends agents whose address another host has. It does so on one node at a time.
func (h *Homes) Run(ctx context.Context) error {
	if !h.On() {
		<-ctx.Done()
		return nil
	}
	return h.core.Ledger.Hold(ctx, "mail.homes", func(ctx context.Context) error {
		// The others hear that this host is back: what they could not settle they settle now.
		if h.decides() {
			h.tell(ctx, "")
		}
		for pause := retry; ctx.Err() == nil; {
			wait := refresh
			if err := h.settle(ctx); err != nil {
				wait, pause = pause, min(2*pause, mostRetry)
			} else {
				pause = retry
			}
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-h.wake:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		return nil
	})
}

// settle is one round. Agents are looked at only if some may have been added: they are all of the roster's.
func (h *Homes) settle(ctx context.Context) error {
	if err := h.pull(ctx); err != nil {
		return err
	}
	dirty, again := h.takeDirty()
	if !dirty {
		return nil
	}
	err := h.settleAgents(ctx, again)
	if err != nil {
		h.mark(again)
	}
	return err
}

// settleAgents claims the addresses of this host's agents that are not claimed, and releases reservations that came
// to nothing. With again it claims all of them.
func (h *Homes) settleAgents(ctx context.Context, again bool) error {
	all, err := store.All(h.core.DB.Reading(ctx), scanHome, "SELECT "+columns+" FROM mail_home")
	if err != nil {
		return err
	}
	homes := map[string]Home{}
	for _, there := range all {
		homes[there.Address] = there
	}
	var claims []Claim
	own := map[string]*roster.Agent{}
	for after := [2]string{}; ; {
		agents, err := h.core.Roster.Agents(ctx, "", after, wire.MaxPage)
		if err != nil {
			return err
		}
		for i := range agents {
			a := &agents[i]
			after = [2]string{a.Workspace, a.Name}
			if a.Address == "" {
				continue
			}
			own[a.Address] = a
			switch there, key := homes[a.Address], currentKey(a); {
			case h.isElsewhere(there):
				if err := h.lose(ctx, a, there.Host); err != nil {
					return err
				}
			case again, there.Host == "", there.Registrar != h.registrar, there.Key == "" && key != "":
				claims = append(claims, Claim{Address: a.Address, Key: key})
			}
		}
		if len(agents) < wire.MaxPage {
			break
		}
	}
	var release []string
	for address, there := range homes {
		if there.Host == h.options.Mesh.Host && there.Key == "" && own[address] == nil &&
			there.At < h.core.Now().Add(-unused).UnixMicro() && len(release) < batch {
			release = append(release, address)
		}
	}
	return h.claimAll(ctx, claims, release, own)
}

// claimAll claims addresses of agents, a batch at a time, and suspends the agents whose address is another host's.
func (h *Homes) claimAll(ctx context.Context, claims []Claim, release []string, own map[string]*roster.Agent) error {
	for len(claims)+len(release) > 0 {
		n := min(len(claims), batch)
		answers, err := h.exchange(ctx, claims[:n], release)
		if err != nil {
			return err
		}
		claims, release = claims[n:], nil
		for _, answer := range answers {
			a := own[answer.Address]
			switch {
			case a == nil:
			case answer.Refused != "":
				h.core.Log.Warn("an agent cannot be reached from other hosts", "agent", a.Address, "reason", answer.Refused)
			case answer.Host != h.options.Mesh.Host:
				if err := h.lose(ctx, a, answer.Host); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lose suspends an agent whose address another host had first, and tells operators (MSG-99). An address that was ours
// by an earlier decision stays ours: see learn.
func (h *Homes) lose(ctx context.Context, a *roster.Agent, owner string) error {
	settled := false
	if err := h.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		there, err := read(tx.QueryRow, a.Address)
		settled = there.Host == h.options.Mesh.Host && there.Key != ""
		if err != nil || settled || a.Suspended {
			return err
		}
		return alarm.Raise(tx, alarm.Alarm{
			Workspace: a.Workspace, Kind: "address_lost", Agent: a.ID,
			Title: "An agent was suspended, since another host of the mesh had its address first",
			Detail: a.Address + " lives on the host " + owner + ". Remove the agent here, and register it with another name. " +
				"Its queue is kept until then.",
		})
	}); err != nil || settled || a.Suspended {
		return err
	}
	h.core.Log.Warn("an agent was suspended: another host of the mesh had its address first", "agent", a.Address, "host",
		owner)
	_, err := h.core.Roster.Suspend(ctx, roster.Identity{}, a.Workspace, a.ID, "its address lives on the host "+owner,
		time.Time{})
	return err
}

// currentKey is the fingerprint of the agent's public key in use, "" for an agent without one.
func currentKey(a *roster.Agent) string {
	for _, k := range a.PublicKeys {
		if k.RetiredAt == nil {
			return k.Fingerprint
		}
	}
	return ""
}
