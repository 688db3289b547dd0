package mailbox

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// Joining is how an agent registers with a provider: where, and with what permission.
type Joining struct {
	Server  string // the provider's address, such as https://crabmail.ai
	Tenant  string // when empty, the box's own, else the provider's organization
	UserKey string // an owner's key, or an operator's token
	Invite  string // an invite code
	Alias   string // a name for people
	Again   bool   // get a further API key for an address that the agent has
	// Unsigned lets the agent send without a signature too, such as by programs that only have its API key. Without it
	// the provider is told to take only what an agent that Init made has signed.
	Unsigned bool
}

// Register gets the agent an address with a provider, and stores the registration. With Again it
// gets a further API key for an address that the agent has, which helps after one was lost.
func (b *Box) Register(ctx context.Context, j Joining) (r Registration, err error) {
	err = b.withLock(func() error {
		r, err = b.register(ctx, j)
		return err
	})
	return r, err
}

// register discovers the provider and asks it. A provider that answers 401 or 409 may accept a proof of
// the private key (MSG-19), so it is asked once more with one; if that fails too, the first answer is
// the useful one. The caller holds the lock.
func (b *Box) register(ctx context.Context, j Joining) (Registration, error) {
	at, err := discover(ctx, j.Server)
	if err != nil {
		return Registration{}, err
	}
	before := b.registrationWith(at)
	// Registering again by accident would leave an API key behind that nobody revokes.
	if before != nil && !j.Again {
		return Registration{},
			fault.New(fault.AlreadyExists, "%s is already registered there, as %s. Get a new API key with `--again`.", b.Name,
				before.Address)
	}
	body, as := b.registrationRequest(ctx, j, at, before)
	var a answer
	url := at.endpoint + "/register"
	err = as.call(ctx, http.MethodPost, url, body, &a)
	// The proof names provider and address, so both have to be known.
	if status := statusOf(err); (status == http.StatusUnauthorized || status == http.StatusConflict) &&
		at.provider != "" && body["tenant"] != "" {
		// It may only want to see that the key is ours.
		first := err
		b.addProof(body, at.provider)
		if err = as.call(ctx, http.MethodPost, url, body, &a); err != nil {
			err = first
		}
	}
	if err != nil {
		return Registration{}, err
	}
	r, err := b.saveRegistration(at, a)
	// A provider that knows of the demand and did not take it with the registration, as for an agent that it had before.
	if err == nil && b.made && !j.Unsigned && a.RequireSignature != nil && !*a.RequireSignature {
		err = b.demandSignature(ctx, &r)
	}
	return r, err
}

// demandSignature tells a provider to take only what the agent has signed, with a proof of the key (MSG-110).
func (b *Box) demandSignature(ctx context.Context, r *Registration) error {
	now := b.now().Unix()
	proof := ed25519.Sign(b.keyFor(r), amp.SigningProof(r.Address, now))
	return newCaller(r.apiKey).call(ctx, http.MethodPatch, r.APIURL+"/agents/me", map[string]any{
		"require_signature": true, "proof": base64.StdEncoding.EncodeToString(proof), "proof_timestamp": now,
	}, nil)
}

// answer is a provider's answer to a registration. Not every provider sends all of it.
type answer struct {
	Address  string `json:"address"`
	Short    string `json:"short_address"`
	AgentID  string `json:"agent_id"`
	Tenant   string `json:"tenant"`
	TenantID string `json:"tenant_id"`
	APIKey   string `json:"api_key"`
	At       string `json:"registered_at"`
	// RequireSignature is absent in the answer of a provider that does not know of it.
	RequireSignature *bool `json:"require_signature"`
	Provider         struct {
		Name     string `json:"name"`
		Endpoint string `json:"endpoint"`
		RouteURL string `json:"route_url"`
	} `json:"provider"`
}

// registrationWith is the registration with a provider, by its domain or its address, nil for none.
func (b *Box) registrationWith(at found) *Registration {
	for i := range b.Registrations {
		if r := &b.Registrations[i]; r.Provider == at.provider || r.APIURL == at.endpoint {
			return r
		}
	}
	return nil
}

// registrationRequest is the body of a registration, and the caller with the key to send it with: the user
// key, else the API key of the registration that is repeated, else none.
func (b *Box) registrationRequest(ctx context.Context, j Joining, at found,
	before *Registration,
) (map[string]any, *caller) {
	body := map[string]any{"name": b.Name, "public_key": publicPEM(b.key), "key_algorithm": "Ed25519"}
	for name, value := range map[string]string{"agent_id": b.ID, "alias": j.Alias, "invite_code": j.Invite} {
		if value != "" {
			body[name] = value
		}
	}
	if b.made && !j.Unsigned {
		body["require_signature"] = true // others ignore it
	}
	// An empty key is a call without one.
	as := newCaller(j.UserKey)
	tenant := j.Tenant
	if before != nil {
		tenant = before.Tenant
		if j.UserKey == "" {
			as.key = before.apiKey
		}
	}
	// A user key and an invite determine the tenant; naming another would be refused.
	if tenant == "" && j.UserKey == "" && j.Invite == "" { // else those say it
		tenant = b.Tenant
		if tenant == "" {
			tenant = organization(ctx, at.base)
		}
	}
	if tenant != "" {
		body["tenant"] = tenant
	}
	return body, as
}

// organization is the tenant that a provider suggests (MSG-3), "default" if it suggests none.
func organization(ctx context.Context, base string) string {
	var o struct{ Organization string }
	_ = newCaller("").call(ctx, http.MethodGet, base+"/api/organization", nil, &o) // not every provider has it
	if !amp.LabelForm.MatchString(o.Organization) {
		return "default"
	}
	return o.Organization
}

// addProof adds a proof of the private key to the body (MSG-19).
func (b *Box) addProof(body map[string]any, provider string) {
	tenant, _ := body["tenant"].(string)
	now := b.now().Unix()
	address := amp.Address{Name: b.Name, Tenant: tenant, Provider: provider}
	body["proof"] = base64.StdEncoding.EncodeToString(ed25519.Sign(b.key,
		amp.RegistrationProof(provider, address.String(), now)))
	body["proof_timestamp"] = now
}

// saveRegistration checks a provider's answer and stores the registration. The addresses in it must not lead
// from https to http: the API key follows them (MSG-95).
func (b *Box) saveRegistration(at found, a answer) (Registration, error) {
	r := Registration{
		Provider: a.Provider.Name, Address: a.Address, Short: a.Short, AgentID: oneLine(a.AgentID, 128), Tenant: a.Tenant,
		APIURL: apiBase(a.Provider.Endpoint), RouteURL: a.Provider.RouteURL, Fingerprint: b.Fingerprint(),
		RegisteredAt: b.stamp(), apiKey: a.APIKey,
	}
	if r.Provider == "" {
		r.Provider = at.provider
	}
	if r.APIURL == "" {
		r.APIURL = at.endpoint
	}
	// MSG-16: not every provider sends it.
	if r.RouteURL == "" {
		r.RouteURL = r.APIURL + "/route"
	}
	address, err := r.domains().Parse(r.Address)
	if err == nil {
		err = checkDomain(r.Provider)
	}
	// Anything that answers with JSON gets this far: a web page must not become a registration.
	if err != nil || r.apiKey == "" {
		return r, fault.Wrap(err, fault.Internal,
			"The provider at %s answers, and not with an address, a provider and a key. Check that it is a mail provider.",
			at.base)
	}
	for _, url := range []string{r.APIURL, r.RouteURL} {
		if err := checkNoDowngrade(at.base, url); err != nil {
			return r, err
		}
	}
	if r.Tenant == "" {
		r.Tenant = address.Tenant
	}
	if old := b.registrationWith(found{provider: r.Provider, endpoint: r.APIURL}); old != nil {
		r.rest = old.rest
		*old = r
	} else {
		b.Registrations = append(b.Registrations, r)
	}
	// The API key first: the provider shows it only once.
	if err := b.writeRegistration(&r); err != nil {
		return r, err
	}
	// The first registration is the primary one, and stays it.
	if b.Address == "" || b.Provider == r.Provider {
		b.Address, b.Provider, b.Tenant = r.Address, r.Provider, r.Tenant
	}
	return r, b.save()
}
