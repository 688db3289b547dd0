package directory

import (
	"context"

	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The answers to owners.
type (
	// OwnedAgent is an agent as its owner sees it.
	OwnedAgent struct {
		ID           string `json:"id"`
		Address      string `json:"address"`
		Online       bool   `json:"online"`
		RegisteredAt string `json:"registered_at"`
	}
	// OwnedList is the agents of an owner.
	OwnedList struct {
		Agents []OwnedAgent `json:"agents"`
		Total  int          `json:"total"`
		Limit  int          `json:"limit"`
	}
	// UserKey is what an owner may know of the key. It is stored as a hash, so that it
	// cannot be shown; the hint is enough to recognise it.
	UserKey struct {
		UserKey    string `json:"user_key"`
		UserID     string `json:"user_id"`
		TenantID   string `json:"tenant_id"`
		AgentCount int    `json:"agent_count"`
		AgentLimit int    `json:"agent_limit"`
	}
	// Removed is an agent that its owner has removed.
	Removed struct {
		Deleted bool   `json:"deleted"`
		AgentID string `json:"agent_id"`
	}
)

// ownerLimit is how many agents are listed for an owner at the most.
const ownerLimit = 1000

// UserKey is what an owner may know of the key that the call was made with.
func (d *Directory) UserKey(ctx context.Context, owner roster.Identity) (UserKey, error) {
	owned, err := d.core.Roster.OwnedBy(ctx, owner.ID)
	if err != nil {
		return UserKey{}, err
	}
	keys, err := d.core.Roster.Keys(ctx, owner.Workspace, owner.ID, "", wire.MaxPage)
	if err != nil {
		return UserKey{}, err
	}
	out := UserKey{UserID: owner.ID, TenantID: owner.Workspace, AgentCount: len(owned), AgentLimit: ownerLimit}
	for _, k := range keys {
		if k.ID == owner.KeyID {
			out.UserKey = k.Hint
		}
	}
	return out, nil
}

// Owned lists the agents of an owner.
func (d *Directory) Owned(ctx context.Context, owner roster.Identity) (OwnedList, error) {
	owned, err := d.core.Roster.OwnedBy(ctx, owner.ID)
	if err != nil {
		return OwnedList{}, err
	}
	out := OwnedList{Agents: []OwnedAgent{}, Total: len(owned), Limit: ownerLimit}
	for _, a := range owned {
		out.Agents = append(out.Agents, OwnedAgent{a.ID, a.Address, a.Online, amp.Stamp(a.AddedAt)})
	}
	return out, nil
}

// RemoveOwned removes an agent of the owner.
func (d *Directory) RemoveOwned(ctx context.Context, owner roster.Identity, agentID string) (Removed, error) {
	_, err := d.deregister(ctx, owner, owner.Workspace, agentID)
	return Removed{true, agentID}, err
}
