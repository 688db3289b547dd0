package directory

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
)

// Registered is the answer to a registration. The key is shown this once.
type Registered struct {
	Address       string       `json:"address"`
	ShortAddress  string       `json:"short_address"`
	LocalName     string       `json:"local_name"`
	AgentID       string       `json:"agent_id"`
	TenantID      string       `json:"tenant_id"`
	Tenant        string       `json:"tenant"`
	APIKey        string       `json:"api_key"`
	Provider      ProviderInfo `json:"provider"`
	Fingerprint   string       `json:"fingerprint"`
	RegisteredAt  string       `json:"registered_at"`
	OwnerID       string       `json:"owner_id,omitempty"`
	WebhookSecret string       `json:"webhook_secret,omitempty"` // when we made it

	again bool // it was registered before
}

// ProviderInfo tells a client where we are.
type ProviderInfo struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	RouteURL string `json:"route_url"`
}

// Register registers an agent, or gives one that proves who it is a new key.
func (d *Directory) Register(ctx context.Context, by roster.Identity, body []byte) (Registered, error) {
	n, err := parseRegistration(body)
	if err != nil {
		return Registered{}, err
	}
	if err := d.admit(by, n); err != nil {
		return Registered{}, err
	}
	if err := d.CheckRevoked(ctx, n.key); err != nil {
		return Registered{}, err
	}
	actor := by
	if by.ID == "" {
		actor = roster.Identity{ID: n.name, Kind: roster.HolderAgent, Name: n.name}
	}
	n.id = roster.NewAgentID()
	if n.profile, err = d.change(ctx, n.Fields, n.id, Profile{}); err != nil {
		return Registered{}, err
	}
	key := roster.NewKey(roster.MailKey)
	var a roster.Agent
	var again bool
	err = d.core.Roster.Write(ctx, func(tx *ledger.Tx) error {
		a, again, err = d.enter(tx, actor, by, *n, &key)
		return err
	})
	if err != nil {
		return Registered{}, d.explainTaken(ctx, n, err)
	}
	out := d.registered(a, key.Secret, by)
	if out.again = again; !again {
		d.profiles.Put(a.ID, n.profile)
		out.WebhookSecret = d.madeSecret(a.Workspace, a.ID, n.profile)
	}
	return out, nil
}

// enter adds the agent, or finds that it is there and gives it a new key.
func (d *Directory) enter(tx *ledger.Tx, actor, by roster.Identity, n newcomer,
	key *roster.Issued,
) (a roster.Agent, again bool, err error) {
	if err := d.useInvite(tx, actor, by, &n); err != nil {
		return a, false, err
	}
	a, err = d.core.Roster.AgentIn(tx, n.tenant, n.rosterName())
	switch {
	case err == nil:
		if err := d.reissue(tx, actor, by, &n, a, key); err != nil {
			return a, true, err
		}
		a, err = d.core.Roster.AgentIn(tx, n.tenant, a.ID)
		return a, true, err
	case !fault.Is(err, fault.NotFound):
		return a, false, err
	}
	if a, err = d.enrol(tx, actor, by, &n, key); err != nil {
		return a, false, err
	}
	appendProfile(tx, actor, a.Workspace, a.ID, n.profile)
	return a, false, nil
}

// admit decides who may register, by what they bring. It settles the tenant where what
// they bring says it.
func (d *Directory) admit(by roster.Identity, n *newcomer) error {
	switch {
	case by.Kind == roster.HolderOwner, by.Kind == roster.HolderAgent:
		if n.tenant == "" {
			n.tenant = by.Workspace
		}
		if n.tenant != by.Workspace {
			return fault.New(fault.TenantDenied, "This key is for the tenant %q. Leave tenant out, or use a key of %q.",
				by.Workspace, n.tenant).About("tenant")
		}
		return nil
	case by.Kind == roster.HolderOperator:
		if n.tenant == "" {
			n.tenant = by.Workspace
		}
		if !by.Role.Allows(roster.Operator) || by.Workspace != "" && by.Workspace != n.tenant {
			return fault.New(fault.TenantDenied, "This token may not register agents in the tenant %q.",
				n.tenant).About("tenant")
		}
	case n.invite != "" && (d.options.Mode == ByInvite || d.options.Mode == Open):
		return nil // the invite says which tenant
	}
	if n.tenant == "" {
		n.Missing("tenant", "the tenant that the agent belongs to, such as \"acme\"")
		return n.Err
	}
	if by.Kind == roster.HolderOperator || d.options.Mode == Open || n.proof != nil {
		return nil // what a proof is good for shows when the agent is looked up
	}
	return d.closed()
}

// closed says what it takes to register.
func (d *Directory) closed() error {
	how := map[string]string{
		ByOwner: "an owner's key in the header Authorization: Bearer uk_…, which an operator makes " +
			"with `signalbox owners add`",
		ByInvite: "an invite_code, which an operator makes with POST /ops/invites",
		ByProof: "a proof, signed with the agent's key over \"amp-register\\n\" + provider + \"\\n\" + address + " +
			"\"\\n\" + proof_timestamp",
		ByOperator: "an operator's token in the header Authorization: Bearer sbx_op_…",
	}[d.options.Mode]
	return fault.New(fault.Unauthenticated, "Registration here takes %s.", how)
}

func (d *Directory) useInvite(tx *ledger.Tx, actor, by roster.Identity, n *newcomer) error {
	if n.invite == "" || by.ID != "" {
		return nil
	}
	workspace, err := d.core.Roster.UseInvite(tx, actor, n.invite)
	if err != nil {
		return err
	}
	if n.tenant != "" && n.tenant != workspace {
		return fault.New(fault.TenantDenied, "This invite is for the tenant %q.", workspace).About("tenant")
	}
	n.tenant = workspace
	return nil
}

// enrol adds the agent.
func (d *Directory) enrol(tx *ledger.Tx, actor, by roster.Identity, n *newcomer,
	key *roster.Issued,
) (roster.Agent, error) {
	if by.Kind == roster.HolderAgent {
		return roster.Agent{}, fault.New(fault.Forbidden,
			"An agent's key registers that agent again, and no other. Leave the header Authorization "+
				"out, or use an owner's key.")
	}
	if by.ID == "" && n.invite == "" && d.options.Mode != Open {
		if d.options.Mode != ByProof {
			return roster.Agent{}, d.closed()
		}
		if err := d.checkProof(tx, n, n.key); err != nil {
			return roster.Agent{}, err
		}
		if err := roster.RequireWorkspace(tx, n.tenant); err != nil {
			return roster.Agent{}, fault.New(fault.TenantDenied, "There is no tenant %q here.", n.tenant).About("tenant")
		}
	}
	e := roster.Enrolment{
		ID: n.id, Name: n.rosterName(), Workspace: n.tenant, PublicKey: n.key,
		Address:       n.address(d.options.Domains.Own).String(),
		MakeWorkspace: d.options.Mode == Open && by.ID == "" && n.invite == "",
	}
	if by.Kind == roster.HolderOwner {
		e.Owner = by.ID
	}
	a, err := d.core.Roster.Enrol(tx, actor, e, key)
	if fault.Is(err, fault.NotFound) {
		return a, fault.New(fault.TenantDenied, "There is no tenant %q here.", n.tenant).About("tenant")
	}
	return a, err
}

// proofWindow is how far from now the time in a proof may be.
const proofWindow = 300 * time.Second

// checkProof verifies that the registration was signed with the key, for the address,
// now.
func (d *Directory) checkProof(tx *ledger.Tx, n *newcomer, key ed25519.PublicKey) error {
	if n.proof == nil {
		return d.closed()
	}
	if off := tx.Now().Sub(time.Unix(n.proofAt, 0)); off.Abs() > proofWindow {
		return fault.New(fault.Forbidden, "The proof is signed for %s, and now it is %s. Sign the time of now.",
			amp.Stamp(time.Unix(n.proofAt, 0)), amp.Stamp(tx.Now())).About("proof_timestamp")
	}
	own := d.options.Domains.Own
	signed := amp.RegistrationProof(own, n.address(own).String(), n.proofAt)
	if key == nil || !ed25519.Verify(key, signed, n.proof) {
		return fault.New(fault.SignatureInvalid,
			"The proof is not a signature of the agent's registered key over \"amp-register\\n%s\\n%s\\n%d\".",
			own, n.address(own), n.proofAt).About("proof")
	}
	return nil
}

// errTaken says that the name is somebody's, and that the caller has not shown to be
// that somebody.
var errTaken = errors.New("taken")

// reissue gives an agent that is there a further key, for what shows that it is the
// agent: its current key, its owner's, or a proof with its private key. To know its public
// key shows nothing.
func (d *Directory) reissue(tx *ledger.Tx, actor, by roster.Identity, n *newcomer, a roster.Agent,
	key *roster.Issued,
) error {
	current := currentKey(a)
	same := current != "" && current == roster.Fingerprint(n.key)
	switch {
	case by.Kind == roster.HolderOwner && a.Owner == by.Name, by.Kind == roster.HolderOperator:
		// An owner may give their agent a new public key.
		if !same {
			if err := d.replaceKey(tx, actor, a, n.key); err != nil {
				return err
			}
		}
	case by.Kind == roster.HolderAgent && by.ID == a.ID && same:
	case n.proof != nil && same:
		if err := d.checkProof(tx, n, n.key); err != nil {
			return err
		}
		if err := d.core.Roster.Prove(tx, actor, a, n.proofAt); err != nil {
			return err
		}
	default:
		return errTaken
	}
	d.core.Roster.Reissue(tx, actor, a, key)
	return nil
}

func currentKey(a roster.Agent) string {
	for _, k := range a.PublicKeys {
		if k.RetiredAt == nil {
			return k.Fingerprint
		}
	}
	return ""
}

// replaceKey makes another public key the agent's, and puts the one before on the list
// of those that are not taken again.
func (d *Directory) replaceKey(tx *ledger.Tx, actor roster.Identity, a roster.Agent, key ed25519.PublicKey) error {
	before := currentKey(a)
	if err := d.core.Roster.UsePublicKey(tx, actor, a, key); err != nil {
		return err
	}
	if before != "" && before != roster.Fingerprint(key) {
		revoke(tx, actor, a.Workspace, before, revoked{a.Address, "key_rotation", roster.Fingerprint(key)})
	}
	return nil
}

// explainTaken tells a name that is taken from a key that is.
func (d *Directory) explainTaken(ctx context.Context, n *newcomer, err error) error {
	e, isFault := errors.AsType[*fault.Error](err)
	switch {
	case errors.Is(err, errTaken), isFault && e.Code == fault.AlreadyExists && e.Field == "name":
		message := "The name %q is taken in the tenant %q. If the agent is yours, register it with its current key, its " +
			"owner's key or a proof; else take another name."
		out := fault.New(fault.NameTaken, message, n.rosterName(), n.tenant).About("name")
		if isFault {
			out.Message = e.Message
		}
		return out.With("suggestions", d.suggestions(ctx, n))
	case isFault && e.Code == fault.AlreadyExists && e.Field == "public_key":
		return fault.New(fault.KeyAlreadyRegistered, "%s", e.Message).About("public_key")
	case isFault && e.Code == fault.InvalidPayload:
		return fault.New(fault.InvalidField, "%s", e.Message).About(e.Field)
	}
	return err
}

var (
	adjectives = []string{"cosmic", "quiet", "amber", "swift", "gentle", "bright", "northern", "copper"}
	nouns      = []string{"wolf", "heron", "otter", "falcon", "maple", "meadow", "signal", "comet"}
)

// suggestions are three names that are free.
func (d *Directory) suggestions(ctx context.Context, n *newcomer) []string {
	var free []string
	try := func(name string) {
		next := *n
		next.name = name
		if _, err := d.core.Roster.Find(ctx, next.address(d.options.Domains.Own).String()); fault.Is(err, fault.NotFound) &&
			len(name) <= 63 {
			free = append(free, name)
		}
	}
	for i := 2; i < 50 && len(free) < 2; i++ {
		try(fmt.Sprintf("%s-%d", n.name, i))
	}
	for range 10 {
		if len(free) < 3 {
			try(n.name + "-" + adjectives[rand.IntN(len(adjectives))] + "-" + nouns[rand.IntN(len(nouns))])
		}
	}
	return free
}

// madeSecret is the secret of the agent's webhook, if it is one that we made.
func (d *Directory) madeSecret(workspace, agentID string, p Profile) string {
	if p.WebhookURL == "" || len(p.Secret) > 0 {
		return ""
	}
	return d.core.Outbox.SecretFor(workspace, agentID, 0).Reveal()
}

func (d *Directory) registered(a roster.Agent, secret string, by roster.Identity) Registered {
	address, _ := d.options.Domains.Parse(a.Address) // made by us
	out := Registered{
		Address: a.Address, ShortAddress: address.Short(), LocalName: address.Name, AgentID: a.ID, TenantID: a.Workspace,
		Tenant: a.Workspace, APIKey: secret,
		Provider: ProviderInfo{
			d.options.Domains.Own, amp.Endpoint(d.core.BaseURL),
			amp.Endpoint(d.core.BaseURL) + "/route",
		},
		Fingerprint: currentKey(a), RegisteredAt: amp.Stamp(a.AddedAt),
	}
	if by.Kind == roster.HolderOwner {
		out.OwnerID = by.ID
	}
	return out
}
