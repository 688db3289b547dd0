package mailbox

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// Joining is how an agent registers with a provider.
type Joining struct {
	Server  string // the provider's address, such as https://crabmail.ai
	Tenant  string // the box's own, else the provider's organization
	UserKey string // an owner's key
	Invite  string
	Alias   string
	Again   bool // ask for a new key although there is a registration
}

// Register gets the agent an address, and keeps it.
func (b *Box) Register(ctx context.Context, j Joining) (r Registration, err error) {
	err = b.alone(func() error {
		r, err = b.register(ctx, j)
		return err
	})
	return r, err
}

func (b *Box) register(ctx context.Context, j Joining) (Registration, error) {
	at, err := discover(ctx, j.Server)
	if err != nil {
		return Registration{}, err
	}
	before := b.with(at)
	if before != nil && !j.Again {
		return Registration{},
			fault.New(fault.AlreadyExists, "%s is registered there already, as %s. `--again` gets it a new key.", b.Name,
				before.Address)
	}
	body, as := b.application(ctx, j, at, before)
	var a answer
	url := at.endpoint + "/register"
	err = as.call(ctx, http.MethodPost, url, body, &a)
	if status := statusOf(err); (status == http.StatusUnauthorized || status == http.StatusConflict) &&
		at.provider != "" && body["tenant"] != "" {
		// It may only want to see that the key is ours.
		first := err
		b.prove(body, at.provider)
		if err = as.call(ctx, http.MethodPost, url, body, &a); err != nil {
			err = first
		}
	}
	if err != nil {
		return Registration{}, err
	}
	return b.keep(at, a)
}

// answer is what providers say, in either spelling.
type answer struct {
	Address  string `json:"address"`
	Short    string `json:"short_address"`
	AgentID  string `json:"agent_id"`
	Tenant   string `json:"tenant"`
	TenantID string `json:"tenant_id"`
	APIKey   string `json:"api_key"`
	At       string `json:"registered_at"`
	Provider struct {
		Name     string `json:"name"`
		Endpoint string `json:"endpoint"`
		RouteURL string `json:"route_url"`
	} `json:"provider"`
}

// with is the registration with a provider, nil for none.
func (b *Box) with(at found) *Registration {
	for i := range b.Registrations {
		if r := &b.Registrations[i]; r.Provider == at.provider || r.APIURL == at.endpoint {
			return r
		}
	}
	return nil
}

// application is the request, and who makes it.
func (b *Box) application(ctx context.Context, j Joining, at found, before *Registration) (map[string]any, *caller) {
	body := map[string]any{"name": b.Name, "public_key": publicPEM(b.key), "key_algorithm": "Ed25519"}
	for name, value := range map[string]string{"agent_id": b.ID, "alias": j.Alias, "invite_code": j.Invite} {
		if value != "" {
			body[name] = value
		}
	}
	as := newCaller(j.UserKey)
	tenant := j.Tenant
	if before != nil {
		tenant = before.Tenant
		if j.UserKey == "" {
			as.key = before.apiKey
		}
	}
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

// organization is the tenant that a provider has for who names none.
func organization(ctx context.Context, base string) string {
	var o struct{ Organization string }
	_ = newCaller("").call(ctx, http.MethodGet, base+"/api/organization", nil, &o) // not every provider has it
	if !amp.LabelForm.MatchString(o.Organization) {
		return "default"
	}
	return o.Organization
}

// prove adds a signature which shows that the address is the agent's own.
func (b *Box) prove(body map[string]any, provider string) {
	tenant, _ := body["tenant"].(string)
	now := b.now().Unix()
	address := amp.Address{Name: b.Name, Tenant: tenant, Provider: provider}
	body["proof"] = base64.StdEncoding.EncodeToString(ed25519.Sign(b.key,
		amp.RegistrationProof(provider, address.String(), now)))
	body["proof_timestamp"] = now
}

// keep checks what the provider has answered, and writes it down.
func (b *Box) keep(at found, a answer) (Registration, error) {
	r := Registration{
		Provider: a.Provider.Name, Address: a.Address, Short: a.Short, AgentID: plain(a.AgentID, 128), Tenant: a.Tenant,
		APIURL: apiBase(a.Provider.Endpoint), RouteURL: a.Provider.RouteURL, Fingerprint: b.Fingerprint(),
		RegisteredAt: b.stamp(), apiKey: a.APIKey,
	}
	if r.Provider == "" {
		r.Provider = at.provider
	}
	if r.APIURL == "" {
		r.APIURL = at.endpoint
	}
	if r.RouteURL == "" {
		r.RouteURL = r.APIURL + "/route"
	}
	address, err := r.domains().Parse(r.Address)
	if err == nil {
		err = checkDomain(r.Provider)
	}
	if err != nil || r.apiKey == "" {
		return r, fault.Wrap(err, fault.Internal,
			"The provider at %s answers, and not with an address, a provider and a key. Check that it is a mail provider.",
			at.base)
	}
	for _, url := range []string{r.APIURL, r.RouteURL} {
		if err := sameCare(at.base, url); err != nil {
			return r, err
		}
	}
	if r.Tenant == "" {
		r.Tenant = address.Tenant
	}
	if old := b.with(found{provider: r.Provider, endpoint: r.APIURL}); old != nil {
		r.rest = old.rest
		*old = r
	} else {
		b.Registrations = append(b.Registrations, r)
	}
	// The key first: it is shown only once.
	if err := b.writeRegistration(&r); err != nil {
		return r, err
	}
	if b.Address == "" || b.Provider == r.Provider {
		b.Address, b.Provider, b.Tenant = r.Address, r.Provider, r.Tenant
	}
	return r, b.save()
}
