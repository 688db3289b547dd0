package directory

import (
	"context"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// addressHold is how long the address of an agent that left stays reserved (MSG-24): mail that is
// still on its way must not reach somebody else.
const addressHold = 30 * 24 * time.Hour

// The answers about agents.
type (
	// Delivery is how an agent wants its mail delivered. The webhook's secret is never shown.
	Delivery struct {
		WebhookURL      string `json:"webhook_url,omitempty"`
		PreferWebSocket bool   `json:"prefer_websocket"`
	}
	// Me is the answer to an agent about itself.
	Me struct {
		Address  string   `json:"address"`
		Alias    string   `json:"alias"`
		Delivery Delivery `json:"delivery"`
		// Fingerprint is that of the current public key, "" for an agent that has none.
		Fingerprint         string               `json:"fingerprint"`
		RegisteredAt        string               `json:"registered_at"`
		LastSeenAt          string               `json:"last_seen_at"`
		Capabilities        []string             `json:"capabilities,omitempty"`
		CommunicationPolicy *CommunicationPolicy `json:"communication_policy,omitempty"`
		RequireSignature    bool                 `json:"require_signature"`
		// OperatorPolicy is the policy among the duties: that of the operators, which counts beside the agent's own.
		OperatorPolicy *CommunicationPolicy `json:"operator_policy,omitempty"`
	}
	// Updated is the answer to a change of the profile. WebhookSecret is present if the agent set
	// a webhook without a secret of its own.
	Updated struct {
		Updated       bool   `json:"updated"`
		Address       string `json:"address"`
		WebhookSecret string `json:"webhook_secret,omitempty"`
	}
	// Deregistered is the answer to an agent that leaves.
	Deregistered struct {
		Deregistered   bool   `json:"deregistered"`
		Address        string `json:"address"`
		DeregisteredAt string `json:"deregistered_at"`
	}
	// Listed is an agent in a list of its tenant.
	Listed struct {
		Address string `json:"address"`
		Alias   string `json:"alias"`
		Online  bool   `json:"online"`
	}
	// AgentList is a page of agents. Total counts all that match, on every page.
	AgentList struct {
		Agents  []Listed `json:"agents"`
		Total   int      `json:"total"`
		Cursor  string   `json:"cursor,omitempty"`
		HasMore bool     `json:"has_more,omitempty"`
	}
	// Resolved is an agent as any other agent may see it, with the key to verify its messages.
	Resolved struct {
		Address      string   `json:"address"`
		Alias        string   `json:"alias"`
		PublicKey    string   `json:"public_key"`
		KeyAlgorithm string   `json:"key_algorithm"`
		Fingerprint  string   `json:"fingerprint"`
		Online       bool     `json:"online"`
		Capabilities []string `json:"capabilities,omitempty"`
		// Rotations prove how the agent has changed its key, the oldest first (MSG-98).
		Rotations []amp.Rotation `json:"key_rotations,omitempty"`
	}
	// Card is an agent's card. The agent would have to sign it, and the server does not have its
	// private key: Signature is null and ProviderAsserted true.
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
)

// Me is the profile of the calling agent.
func (d *Directory) Me(ctx context.Context, who roster.Identity) (Me, error) {
	a, err := d.core.Roster.Agent(ctx, who.Workspace, who.ID)
	if err != nil {
		return Me{}, err
	}
	p := d.Profile(a.ID)
	me := Me{
		Address: a.Address, Alias: p.Alias, Delivery: Delivery{p.WebhookURL, !p.WebhookFirst()}, Fingerprint: currentKey(a),
		RegisteredAt: amp.Stamp(a.AddedAt),
		Capabilities: p.Capabilities, CommunicationPolicy: p.Policy,
	}
	duties := d.Duties(a.ID)
	me.RequireSignature, me.OperatorPolicy = duties.RequireSignature, duties.Policy
	if a.LastSeenAt != nil {
		me.LastSeenAt = amp.Stamp(*a.LastSeenAt)
	}
	return me, nil
}

// Change changes the profile of the calling agent. Members that the body does not name stay, and
// null removes a value. Name, tenant, address and public key cannot be changed here.
func (d *Directory) Change(ctx context.Context, who roster.Identity, body []byte) (Updated, error) {
	f, err := amp.ReadFields(body)
	if err != nil {
		return Updated{}, err
	}
	// Refused rather than ignored: a client that believes it has changed its key would lose its mail.
	for _, fixed := range []string{"name", "tenant", "public_key", "address"} {
		if f.Has(fixed) {
			f.Fail(fixed, "cannot be changed here. A public key is changed with POST /v1/auth/rotate-keys.")
		}
	}
	p, err := d.change(ctx, f, who.ID, d.Profile(who.ID))
	if err != nil {
		return Updated{}, err
	}
	demanded, err := d.demandsSignature(ctx, f, who)
	if err != nil {
		return Updated{}, err
	}
	var seq int64
	var duties readAt
	err = d.core.Ledger.Write(ctx, func(tx *ledger.Tx) (err error) {
		seq = appendProfile(tx, who, who.Workspace, who.ID, p)
		if demanded {
			duties, err = changeDutiesIn(tx, who, who.Workspace, who.ID, func(it *Duties) { it.RequireSignature = true })
		}
		return err
	})
	if err != nil {
		return Updated{}, err
	}
	if demanded {
		d.duties.Put(who.ID, duties.seq, duties.Duties)
	}
	d.profiles.Put(who.ID, seq, p) // at once here; other nodes follow the ledger
	out := Updated{Updated: true, Address: who.Address}
	if f.Has("delivery") {
		out.WebhookSecret = d.generatedSecret(who.Workspace, who.ID, p)
	}
	return out, nil
}

// Leave removes the calling agent for good.
func (d *Directory) Leave(ctx context.Context, who roster.Identity) (Deregistered, error) {
	at, err := d.deregister(ctx, who, who.Workspace, who.ID)
	return Deregistered{true, who.Address, amp.Stamp(at)}, err
}

// deregister removes an agent, in one transaction: its keys are revoked, its public key too, its
// queue is emptied by the apply function of agent.removed, and its address is held (MSG-24). An
// owner may remove their own agents only.
func (d *Directory) deregister(
	ctx context.Context, by roster.Identity, workspace, agentID string,
) (at time.Time, err error) {
	err = d.core.Roster.Write(ctx, func(tx *ledger.Tx) error {
		a, err := d.core.Roster.AgentIn(tx, workspace, agentID)
		if err != nil {
			return err
		}
		// As if it did not exist: an owner must not learn about agents of others.
		if by.Kind == roster.HolderOwner && a.Owner != by.Name {
			return fault.New(fault.NotFound, "You have no agent %.80q.", agentID)
		}
		at = tx.Now()
		// A key must not come back with another agent, or old signatures would speak for it.
		if key := currentKey(a); key != "" {
			revoke(tx, by, workspace, key, revoked{Address: a.Address, Reason: "agent_deregistered"})
		}
		roster.Remove(tx, by.Actor(), workspace, a.ID, addressHold)
		return nil
	})
	return at, err
}

// Query selects agents of the caller's tenant.
type Query struct {
	Tenant string // the caller's own, or "" for the same
	Search string // a part of the address or the alias, in any case
	After  string // the name of the last agent on the page before
	Limit  int
}

// List lists the agents of the caller's tenant. Agents cannot list other tenants. It reads the
// whole tenant, since total counts all matches.
func (d *Directory) List(ctx context.Context, who roster.Identity, q Query) (AgentList, error) {
	out := AgentList{Agents: []Listed{}}
	if tenant := strings.ToLower(q.Tenant); tenant != "" && tenant != who.Workspace {
		return out, who.RefusedWorkspace(fault.New(fault.TenantDenied,
			"You may list the agents of %q, which is your own tenant.", who.Workspace).About("tenant"))
	}
	// Addresses are lower case; aliases may not be.
	search, last := strings.ToLower(q.Search), ""
	// The roster has pages by name; search and total need all of them.
	for name := ""; ; {
		page, err := d.core.Roster.Agents(ctx, who.Workspace, [2]string{who.Workspace, name}, wire.MaxPage)
		if err != nil {
			return out, err
		}
		for _, a := range page {
			name = a.Name
			alias := d.Profile(a.ID).Alias
			if search != "" && !strings.Contains(a.Address, search) && !strings.Contains(strings.ToLower(alias), search) {
				continue
			}
			out.Total++
			switch {
			case a.Name <= q.After:
			case len(out.Agents) < q.Limit:
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
	return out, nil
}

// Resolve finds an agent by its address or a short form, which is expanded with the caller's
// tenant. Agents of other tenants are found if their workspace is open to the caller's.
func (d *Directory) Resolve(ctx context.Context, who roster.Identity, text string) (Resolved, error) {
	if plain, err := url.PathUnescape(text); err == nil {
		text = plain // some clients escape twice
	}
	address, err := d.options.Domains.Expand(text, who.Workspace)
	if err != nil {
		return Resolved{}, fault.From(err).About("address")
	}
	if !d.options.Domains.Ours(address.Provider) {
		return Resolved{}, roster.NoAddress(address.String())
	}
	address = d.options.Domains.Home(address)
	found, err := d.FindFor(ctx, who.Workspace, address)
	if fault.Is(err, fault.NotFound) || err == nil && found.Suspended {
		if elsewhere, there := d.resolveElsewhere(ctx, who, address); there {
			return elsewhere, nil
		}
	}
	if err != nil {
		return Resolved{}, err
	}
	a, err := d.core.Roster.Agent(ctx, found.Workspace, found.ID)
	if err != nil {
		return Resolved{}, err
	}
	p := d.Profile(a.ID)
	return Resolved{
		a.Address, p.Alias, amp.KeyText(found.PublicKey), "Ed25519", currentKey(a), a.Online,
		p.Capabilities, d.rotationsTo(ctx, a.Address, currentKey(a)),
	}, nil
}

// resolveElsewhere is what this host knows of an agent of another host of the mesh: where it is, by which key, and how
// it came to that one. The key itself comes with its messages.
func (d *Directory) resolveElsewhere(ctx context.Context, who roster.Identity, a amp.Address) (Resolved, bool) {
	reached, err := d.core.Roster.Reaches(ctx, who.Workspace, d.Workspace(a.Tenant))
	elsewhere, homeErr := d.options.Homes.Elsewhere(ctx, a)
	if err != nil || homeErr != nil || !reached || !elsewhere {
		return Resolved{}, false
	}
	out := Resolved{Address: a.String(), KeyAlgorithm: "Ed25519"}
	// An agent without a key has none that is known.
	_ = d.core.DB.QueryRow(ctx, "SELECT fingerprint FROM mail_pin WHERE address = $1", []any{out.Address}, &out.Fingerprint)
	out.Rotations = d.rotationsTo(ctx, out.Address, out.Fingerprint)
	return out, true
}

// Card is the card of the calling agent, for six months.
func (d *Directory) Card(_ context.Context, who roster.Identity) (Card, error) {
	p, now := d.Profile(who.ID), d.core.Now()
	// 180 days: the protocol allows up to six months.
	c := Card{
		Card: "1.0", ID: who.ID, Address: who.Address, Alias: p.Alias, PublicKey: amp.KeyText(who.PublicKey),
		KeyAlgorithm: "Ed25519", ProviderEndpoint: amp.Endpoint(d.core.BaseURL),
		Capabilities: p.Capabilities, IssuedAt: amp.Stamp(now), ExpiresAt: amp.Stamp(now.Add(180 * 24 * time.Hour)),
		ProviderAsserted: true,
	}
	if who.PublicKey != nil {
		c.Fingerprint = roster.Fingerprint(who.PublicKey)
	}
	if c.Capabilities == nil {
		c.Capabilities = []string{}
	}
	return c, nil
}
