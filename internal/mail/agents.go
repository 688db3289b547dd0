package mail

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// addressHold is how long the address of an agent that left is given to nobody.
const addressHold = 30 * 24 * time.Hour

// The answers about agents.
type (
	// Delivery is how an agent wants its mail, without the secret.
	Delivery struct {
		WebhookURL      string `json:"webhook_url,omitempty"`
		PreferWebSocket bool   `json:"prefer_websocket"`
	}
	// Me is what an agent hears about itself.
	Me struct {
		Address             string               `json:"address"`
		Alias               string               `json:"alias"`
		Delivery            Delivery             `json:"delivery"`
		Fingerprint         string               `json:"fingerprint"`
		RegisteredAt        string               `json:"registered_at"`
		LastSeenAt          string               `json:"last_seen_at"`
		Capabilities        []string             `json:"capabilities,omitempty"`
		CommunicationPolicy *CommunicationPolicy `json:"communication_policy,omitempty"`
	}
	// Updated answers a change.
	Updated struct {
		Updated       bool   `json:"updated"`
		Address       string `json:"address"`
		WebhookSecret string `json:"webhook_secret,omitempty"` // when we made it
	}
	// Deregistered answers an agent that leaves.
	Deregistered struct {
		Deregistered   bool   `json:"deregistered"`
		Address        string `json:"address"`
		DeregisteredAt string `json:"deregistered_at"`
	}
	// Listed is an agent in a list.
	Listed struct {
		Address string `json:"address"`
		Alias   string `json:"alias"`
		Online  bool   `json:"online"`
	}
	// AgentList is a page of agents.
	AgentList struct {
		Agents  []Listed `json:"agents"`
		Total   int      `json:"total"`
		Cursor  string   `json:"cursor,omitempty"`
		HasMore bool     `json:"has_more,omitempty"`
	}
	// Resolved is what others may know of an agent.
	Resolved struct {
		Address      string   `json:"address"`
		Alias        string   `json:"alias"`
		PublicKey    string   `json:"public_key"`
		KeyAlgorithm string   `json:"key_algorithm"`
		Fingerprint  string   `json:"fingerprint"`
		Online       bool     `json:"online"`
		Capabilities []string `json:"capabilities,omitempty"`
	}
	// Card is an agent's card. The server has no private key of the agent, so it is not
	// signed, and says so.
	Card struct {
		Card             string   `json:"amp_agent_card"`
		ID               string   `json:"id"`
		Address          string   `json:"address"`
		Alias            string   `json:"alias"`
		PublicKey        string   `json:"public_key"`
		KeyAlgorithm     string   `json:"key_algorithm"`
		Fingerprint      string   `json:"fingerprint"`
		ProviderEndpoint string   `json:"provider_endpoint"`
		Capabilities     []string `json:"capabilities"`
		IssuedAt         string   `json:"issued_at"`
		ExpiresAt        string   `json:"expires_at"`
		Signature        *string  `json:"signature"`
		ProviderAsserted bool     `json:"provider_asserted"`
	}
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
)

// ownerLimit is how many agents are listed for an owner at the most.
const ownerLimit = 1000

func (m *Mail) getMe(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	a, err := m.core.Roster.Agent(r.Context(), who.Workspace, who.ID)
	if err != nil {
		return err
	}
	p := m.profile(a.ID)
	me := Me{
		Address: a.Address, Alias: p.Alias, Delivery: Delivery{p.WebhookURL, !p.webhookFirst()}, Fingerprint: currentKey(a), RegisteredAt: amp.Stamp(a.AddedAt),
		Capabilities: p.Capabilities, CommunicationPolicy: p.Policy,
	}
	if a.LastSeenAt != nil {
		me.LastSeenAt = amp.Stamp(*a.LastSeenAt)
	}
	return wire.Reply(w, http.StatusOK, me)
}

func (m *Mail) patchMe(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	f, err := amp.ReadFields(body)
	if err != nil {
		return err
	}
	for _, fixed := range []string{"name", "tenant", "public_key", "address"} {
		if f.Has(fixed) {
			f.Fail(fixed, "cannot be changed here. A public key is changed with POST /v1/auth/rotate-keys.")
		}
	}
	p, err := m.change(r.Context(), f, who.ID, m.profile(who.ID))
	if err != nil {
		return err
	}
	err = m.core.Ledger.Write(r.Context(), func(tx *ledger.Tx) error {
		appendProfile(tx, who, who.Workspace, who.ID, p)
		return nil
	})
	if err != nil {
		return err
	}
	m.useProfile(who.ID, p)
	out := Updated{Updated: true, Address: who.Address}
	if f.Has("delivery") {
		out.WebhookSecret = m.madeSecret(who.Workspace, who.ID, p)
	}
	return wire.Reply(w, http.StatusOK, out)
}

func (m *Mail) deleteMe(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	at, err := m.deregister(r.Context(), who, who.Workspace, who.ID)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, Deregistered{true, who.Address, amp.Stamp(at)})
}

// deregister removes an agent with its keys and its queue, and gives its address to
// nobody for a while.
func (m *Mail) deregister(ctx context.Context, by roster.Identity, workspace, agentID string) (at time.Time, err error) {
	err = m.core.Roster.Write(ctx, func(tx *ledger.Tx) error {
		a, err := m.core.Roster.AgentIn(tx, workspace, agentID)
		if err != nil {
			return err
		}
		if by.Kind == roster.HolderOwner && a.Owner != by.Name {
			return fault.New(fault.NotFound, "You have no agent %.80q.", agentID)
		}
		at = tx.Now()
		if key := currentKey(a); key != "" {
			revoke(tx, by, workspace, key, revoked{a.Address, "agent_deregistered", ""})
		}
		roster.Remove(tx, by.Actor(), workspace, a.ID, addressHold)
		return nil
	})
	return at, err
}

// getAgents lists the agents of the caller's own tenant.
func (m *Mail) getAgents(w http.ResponseWriter, r *http.Request) error {
	who, query := roster.From(r.Context()), r.URL.Query()
	if tenant := strings.ToLower(query.Get("tenant")); tenant != "" && tenant != who.Workspace {
		return fault.New(fault.TenantDenied, "You may list the agents of %q, which is your own tenant.", who.Workspace).About("tenant")
	}
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	after, err := wire.ReadCursor(r, 1)
	if err != nil {
		return err
	}
	out := AgentList{Agents: []Listed{}}
	search, last := strings.ToLower(query.Get("search")), ""
	for name := ""; ; {
		page, err := m.core.Roster.Agents(r.Context(), who.Workspace, [2]string{who.Workspace, name}, wire.MaxPage)
		if err != nil {
			return err
		}
		for _, a := range page {
			name = a.Name
			alias := m.profile(a.ID).Alias
			if search != "" && !strings.Contains(a.Address, search) && !strings.Contains(strings.ToLower(alias), search) {
				continue
			}
			out.Total++
			switch {
			case a.Name <= after[0]:
			case len(out.Agents) < limit:
				out.Agents = append(out.Agents, Listed{a.Address, alias, a.Online})
				last = a.Name
			default:
				out.HasMore = true
			}
		}
		if len(page) < wire.MaxPage {
			break
		}
	}
	if out.HasMore {
		out.Cursor = wire.Cursor(last)
	}
	return wire.Reply(w, http.StatusOK, out)
}

func (m *Mail) getResolve(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	text := r.PathValue("address")
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain // escaped twice by some
	}
	address, err := m.Domains.Expand(text, who.Workspace)
	if err != nil {
		return fault.From(err).About("address")
	}
	if !m.Domains.Ours(address.Provider) {
		return fault.New(fault.NotFound, "There is no agent with the address %s here.", address)
	}
	found, err := m.find(r.Context(), m.Domains.Home(address))
	if err != nil {
		return err
	}
	a, err := m.core.Roster.Agent(r.Context(), found.Workspace, found.ID)
	if err != nil {
		return err
	}
	p := m.profile(a.ID)
	return wire.Reply(w, http.StatusOK, Resolved{a.Address, p.Alias, amp.KeyText(found.PublicKey), "Ed25519", currentKey(a), a.Online, p.Capabilities})
}

func (m *Mail) getCard(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	p, now := m.profile(who.ID), m.core.Now()
	c := Card{
		Card: "1.0", ID: who.ID, Address: who.Address, Alias: p.Alias, PublicKey: amp.KeyText(who.PublicKey), KeyAlgorithm: "Ed25519", ProviderEndpoint: amp.Endpoint(m.core.BaseURL),
		Capabilities: p.Capabilities, IssuedAt: amp.Stamp(now), ExpiresAt: amp.Stamp(now.Add(180 * 24 * time.Hour)), ProviderAsserted: true,
	}
	if who.PublicKey != nil {
		c.Fingerprint = roster.Fingerprint(who.PublicKey)
	}
	if c.Capabilities == nil {
		c.Capabilities = []string{}
	}
	return wire.Reply(w, http.StatusOK, c)
}

// owner finds the owner whose key the call carries.
func (m *Mail) owner(r *http.Request) (roster.Identity, error) {
	by, err := m.caller(r)
	if err == nil && by.Kind != roster.HolderOwner {
		err = fault.New(fault.Unauthenticated, "Send an owner's key in the header Authorization: Bearer uk_….")
	}
	return by, err
}

func (m *Mail) getUserKey(w http.ResponseWriter, r *http.Request) error {
	by, err := m.owner(r)
	if err != nil {
		return err
	}
	owned, err := m.core.Roster.OwnedBy(r.Context(), by.ID)
	if err != nil {
		return err
	}
	keys, err := m.core.Roster.Keys(r.Context(), by.Workspace, by.ID, "", wire.MaxPage)
	if err != nil {
		return err
	}
	out := UserKey{UserID: by.ID, TenantID: by.Workspace, AgentCount: len(owned), AgentLimit: ownerLimit}
	for _, k := range keys {
		if k.ID == by.KeyID {
			out.UserKey = k.Hint
		}
	}
	return wire.Reply(w, http.StatusOK, out)
}

func (m *Mail) getOwned(w http.ResponseWriter, r *http.Request) error {
	by, err := m.owner(r)
	if err != nil {
		return err
	}
	owned, err := m.core.Roster.OwnedBy(r.Context(), by.ID)
	if err != nil {
		return err
	}
	out := OwnedList{Agents: []OwnedAgent{}, Total: len(owned), Limit: ownerLimit}
	for _, a := range owned {
		out.Agents = append(out.Agents, OwnedAgent{a.ID, a.Address, a.Online, amp.Stamp(a.AddedAt)})
	}
	return wire.Reply(w, http.StatusOK, out)
}

func (m *Mail) deleteOwned(w http.ResponseWriter, r *http.Request) error {
	by, err := m.owner(r)
	if err != nil {
		return err
	}
	id := r.PathValue("agent_id")
	if _, err := m.deregister(r.Context(), by, by.Workspace, id); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, map[string]any{"deleted": true, "agent_id": id})
}

// The answers and requests of operators about an agent.
type (
	// Suspension is an agent that is suspended, or is not any more.
	Suspension struct {
		AgentID     string  `json:"agent_id"`
		Suspended   bool    `json:"suspended"`
		SuspendedAt string  `json:"suspended_at,omitempty"`
		ExpiresAt   *string `json:"expires_at"`
	}
	// RiskReport is how an agent behaved lately.
	RiskReport struct {
		AgentID    string  `json:"agent_id"`
		Score      float64 `json:"risk_score"`
		Level      string  `json:"risk_level"`
		Window     string  `json:"window"`
		Breakdown  Risk    `json:"breakdown"`
		Suspended  bool    `json:"suspended"`
		ComputedAt string  `json:"computed_at"`
	}
)

// agentOf finds the agent that an operator's call names, by id, name or address, as far
// as the operator may see it.
func (m *Mail) agentOf(r *http.Request) (roster.Agent, error) {
	name := r.PathValue("id")
	workspace := wire.Scope(r.Context())
	if address, err := m.Domains.Parse(name); err == nil {
		name, workspace = m.Domains.Home(address).Name, address.Tenant
	} else if workspace == "" {
		workspace = roster.DefaultWorkspace
		if found, err := m.core.Roster.WorkspaceOfAgent(r.Context(), name); err == nil && found != "" {
			workspace = found
		}
	}
	if !wire.InScope(r.Context(), workspace) {
		return roster.Agent{}, fault.New(fault.NotFound, "There is no agent %.254q for your token.", r.PathValue("id"))
	}
	return m.core.Roster.Agent(r.Context(), workspace, name)
}

const maxHours = 24 * 365

func (m *Mail) postSuspend(w http.ResponseWriter, r *http.Request) error {
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	f := &amp.Fields{}
	if len(body) > 0 {
		if f, err = amp.ReadFields(body); err != nil {
			return err
		}
	}
	reason := f.Text("reason", 1000)
	var hours float64
	if raw, ok := f.Get("duration_hours"); ok {
		if err := wire.Unmarshal(raw, &hours); err != nil || hours <= 0 || hours > maxHours {
			f.Fail("duration_hours", "should be a number of hours, more than 0 and at most %d.", maxHours)
		}
	}
	if f.Err != nil {
		return f.Err
	}
	a, err := m.agentOf(r)
	if err != nil {
		return err
	}
	var until time.Time
	if hours > 0 {
		until = m.core.Now().Add(time.Duration(math.Round(hours * float64(time.Hour))))
	}
	if a, err = m.core.Roster.Suspend(r.Context(), roster.From(r.Context()), a.Workspace, a.ID, reason, until); err != nil {
		return err
	}
	out := Suspension{AgentID: a.ID, Suspended: a.Suspended, SuspendedAt: amp.Stamp(m.core.Now())}
	if a.SuspendedUntil != nil {
		text := amp.Stamp(*a.SuspendedUntil)
		out.ExpiresAt = &text
	}
	return wire.Reply(w, http.StatusOK, out)
}

func (m *Mail) postUnsuspend(w http.ResponseWriter, r *http.Request) error {
	a, err := m.agentOf(r)
	if err != nil {
		return err
	}
	no := false
	if a, err = m.core.Roster.ChangeAgent(r.Context(), roster.From(r.Context()), a.Workspace, a.ID, roster.AgentChange{Suspended: &no}); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, Suspension{AgentID: a.ID, Suspended: a.Suspended})
}

func (m *Mail) getRisk(w http.ResponseWriter, r *http.Request) error {
	if r.PathValue("what") != "risk" {
		return fault.New(fault.NotFound, "Of an agent there is /risk, /suspend and /unsuspend.")
	}
	a, err := m.agentOf(r)
	if err != nil {
		return err
	}
	risk, err := m.risk(r.Context(), a.ID)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, RiskReport{a.ID, risk.score(), risk.level(), "24h", risk, a.Suspended, amp.Stamp(m.core.Now())})
}
