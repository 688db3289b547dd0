package directory

import (
	"context"

	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The answers to owners.
type (
	// OwnedAgent is an agent in its owner's list.
	OwnedAgent struct {
		ID           string `json:"id"`
		Address      string `json:"address"`
		Online       bool   `json:"online"`
		RegisteredAt string `json:"registered_at"`
	}
	// OwnedList is all agents of an owner; there are no pages.
	OwnedList struct {
		Agents []OwnedAgent `json:"agents"`
		Total  int          `json:"total"`
		Limit  int          `json:"limit"`
	}
	// UserKey describes the owner's key. The key is stored as a hash and cannot be shown; UserKey
	// is its hint, which is enough to recognise it.
	UserKey struct {
		UserKey    string `json:"user_key"`
		UserID     string `json:"user_id"`
		TenantID   string `json:"tenant_id"`
		AgentCount int    `json:"agent_count"`
		AgentLimit int    `json:"agent_limit"`
	}
	// Removed is the answer to an owner who removed an agent.
	Removed struct {
		Deleted bool   `json:"deleted"`
		AgentID string `json:"agent_id"`
	}
)

// ownerLimit is the limit that the protocol's answers name; it is not enforced.
const ownerLimit = 1000

// UserKey describes the owner's key that the call was made with.
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
	// An owner may have several keys; the answer is about the one in use.
	for _, k := range keys {
		if k.ID == owner.KeyID {
			out.UserKey = k.Hint
		}
	}
	return out, nil
}

// Owned lists the agents that an owner registered.
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

// RemoveOwned removes an agent of the owner, as if the agent left.
func (d *Directory) RemoveOwned(ctx context.Context, owner roster.Identity, agentID string) (Removed, error) {
	_, err := d.deregister(ctx, owner, owner.Workspace, agentID)
	return Removed{true, agentID}, err
}
