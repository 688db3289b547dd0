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
	"signalbox/internal/wire"
)

// Registered is the answer to a registration, with the members that clients of all generations
// read (MSG-16). APIKey is shown this once.
//
// A second registration of the same agent has the same members, with the new key.
type Registered struct {
	Address      string `json:"address"`
	ShortAddress string `json:"short_address"` // without a scope
	LocalName    string `json:"local_name"`
	AgentID      string `json:"agent_id"`
	// TenantID and Tenant are the same: some clients read the one, some the other.
	TenantID      string       `json:"tenant_id"`
	Tenant        string       `json:"tenant"`
	APIKey        string       `json:"api_key"`
	Provider      ProviderInfo `json:"provider"`
	Fingerprint   string       `json:"fingerprint"`
	RegisteredAt  string       `json:"registered_at"`
	OwnerID       string       `json:"owner_id,omitempty"`
	WebhookSecret string       `json:"webhook_secret,omitempty"` // if the server made it
	// RequireSignature says that the server takes only what the agent signs (MSG-110).
	RequireSignature bool `json:"require_signature"`

	again bool // the agent existed and got a further key
}

// ProviderInfo is where a client finds this provider. Name must be the domain that the client writes in addresses:
// generation A of the bash clients registers again on every send otherwise.
type ProviderInfo struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
	RouteURL string `json:"route_url"`
}

// Register registers an agent, or gives an agent that proves its identity a further API key. by is
// the caller, the zero Identity for one without a key. Checks that need no transaction come first;
// the rest happens in one, so that of two registrations of a name one wins.
//
// client is what the caller says it is, in User-Agent.
func (d *Directory) Register(ctx context.Context, by roster.Identity, body []byte, client string) (Registered, error) {
	n, err := parseRegistration(body)
	if err != nil {
		return Registered{}, err
	}
	spoken := n.spokenDomain(client, d.options.Domains)
	n.mode = d.mode(ctx)
	if err := d.checkMayRegister(by, n); err != nil {
		return Registered{}, err
	}
	if err := d.CheckRevoked(ctx, n.key); err != nil {
		return Registered{}, err
	}
	// The ledger's actor: the operator or owner who registers it, or the agent itself.
	actor := by
	if by.ID == "" { // the ledger names the newcomer itself
		actor = roster.Identity{ID: n.name, Kind: roster.HolderAgent, Name: n.name}
	}
	// The secret of the webhook is sealed with the id, so it has to exist before the transaction.
	n.id = roster.NewAgentID()
	if n.profile, err = d.change(ctx, n.Fields, n.id, Profile{}); err != nil {
		return Registered{}, err
	}
	// Drawn once: if the transaction runs twice, the key that is answered is the one that was stored.
	key := roster.NewKey(roster.MailKey)
	var a roster.Agent
	var again bool
	register := func(tx *ledger.Tx) (err error) {
		a, again, err = d.registerIn(tx, actor, by, *n, &key)
		return err
	}
	if err := d.reserve(ctx, register); err != nil {
		return Registered{}, d.explainTaken(ctx, n, err)
	}
	if err := d.core.Roster.Write(ctx, register); err != nil {
		return Registered{}, d.explainTaken(ctx, n, err)
	}
	if address, err := d.options.Domains.Parse(a.Address); err == nil && !again {
		d.options.Homes.Confirm(ctx, address, roster.Fingerprint(n.key))
	}
	out := d.registered(a, key.Secret, by)
	if out.again = again; !again {
		// What anybody has changed since then is newer.
		d.profiles.Put(a.ID, 0, n.profile)
		d.duties.Put(a.ID, 0, Duties{RequireSignature: n.signs})
		out.WebhookSecret = d.generatedSecret(a.Workspace, a.ID, n.profile)
	}
	out.RequireSignature = d.Duties(a.ID).RequireSignature
	if spoken != "" {
		out.Provider.Name, out.Provider.Endpoint = spoken, amp.EndpointAs(d.core.BaseURL, spoken)
	}
	return out, nil
}

// errRehearsed ends a registration that was tried out.
var errRehearsed = errors.New("rehearsed")

// reserve reserves the address of a new agent in a mesh (MSG-97). The registration is tried out before: one that is
// refused here must not take a name away from everybody.
func (d *Directory) reserve(ctx context.Context, register func(*ledger.Tx) error) error {
	if !d.options.Homes.On() {
		return nil
	}
	var added roster.Agent
	err := d.core.Roster.Write(ctx, func(tx *ledger.Tx) error {
		others := len(tx.Appended()) // those of other registrations in the batch
		if err := register(tx); err != nil {
			return err
		}
		added = roster.Agent{}
		for _, e := range tx.Appended()[others:] {
			if e.Kind == "agent.added" {
				var err error
				if added, err = d.core.Roster.AgentIn(tx, e.Workspace, e.Subject); err != nil {
					return err
				}
			}
		}
		return errRehearsed
	})
	if !errors.Is(err, errRehearsed) || added.ID == "" { // refused, or an agent that is here already
		return noneRehearsed(err)
	}
	address, err := d.options.Domains.Parse(added.Address)
	if err != nil {
		return err
	}
	return d.options.Homes.Reserve(ctx, address)
}

// noneRehearsed is the error, nil if the rehearsal went well.
func noneRehearsed(err error) error {
	if errors.Is(err, errRehearsed) {
		return nil
	}
	return err
}

// registerIn registers the agent in a transaction, or gives it a further key if it exists. n is a copy,
// since the transaction may run twice and an invite fills in the tenant.
func (d *Directory) registerIn(tx *ledger.Tx, actor, by roster.Identity, n newcomer,
	key *roster.Issued,
) (a roster.Agent, again bool, err error) {
	if err := d.useInvite(tx, actor, by, &n); err != nil {
		return a, false, err
	}
	// In the transaction: of two registrations of one name the second finds the first.
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
	// Who brings the key of a new agent may demand that it is used; of an existing one see demandsSignature.
	if n.signs {
		_, err = changeDutiesIn(tx, actor, a.Workspace, a.ID, func(it *Duties) { it.RequireSignature = true })
	}
	return a, false, err
}

// mode is who may register by this call. Through a proxy that the configuration does not expect, nobody
// registers who shows no credential, whatever it says about this machine.
func (d *Directory) mode(ctx context.Context) string {
	if open := d.options.Mode == Open || d.options.Mode == ByProof; open && wire.ReachOf(ctx).Unexpected {
		return ByOwner
	}
	return d.options.Mode
}

// checkMayRegister decides by the mode and the caller whether a registration may go on, and fills in the
// tenant where the caller's key determines it. It decides only what needs no look-up: invites and
// proofs are checked in the transaction.
func (d *Directory) checkMayRegister(by roster.Identity, n *newcomer) error {
	switch {
	// The key determines the tenant; the request may repeat it, and must not name another.
	case by.Kind == roster.HolderOwner, by.Kind == roster.HolderAgent:
		if n.tenant == "" {
			n.tenant = by.Workspace
		}
		if n.tenant != by.Workspace {
			return by.RefusedWorkspace(fault.New(fault.TenantDenied,
				"This key is for the tenant %q. Leave tenant out, or use a key of %q.", by.Workspace, n.tenant).About("tenant"))
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
	// In the other modes an invite is not enough, and is not used up.
	case n.invite != "" && (n.mode == ByInvite || n.mode == Open):
		return nil // the invite says which tenant
	}
	if n.tenant == "" {
		n.Missing("tenant", "the tenant that the agent belongs to, such as \"acme\"")
		return n.Err
	}
	if by.Kind == roster.HolderOperator || n.mode == Open || n.proof != nil {
		return nil // enrol and reissue check the proof, each for its own purpose
	}
	return registrationClosed(n.mode)
}

// registrationClosed is the answer to a caller who lacks what the mode asks for: it names it.
func registrationClosed(mode string) error {
	// What to do, for the model or person that reads the error; ByOwner and so on are never Open.
	how := map[string]string{
		ByOwner: "an owner's key in the header Authorization: Bearer uk_…, which an operator makes " +
			"with `signalbox users add`",
		ByInvite: "an invite_code, which an operator makes with POST /ops/invites",
		ByProof: "a proof, signed with the agent's key over \"amp-register\\n\" + provider + \"\\n\" + address + " +
			"\"\\n\" + proof_timestamp",
		ByOperator: "an operator's token in the header Authorization: Bearer sbx_op_…",
	}[mode]
	return fault.New(fault.Unauthenticated, "Registration here takes %s.", how)
}

// useInvite uses up an invite, whose workspace is the tenant. A registration that fails later in the
// transaction uses up nothing.
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

// enrol adds a new agent, if the mode allows that for this caller.
func (d *Directory) enrol(tx *ledger.Tx, actor, by roster.Identity, n *newcomer,
	key *roster.Issued,
) (roster.Agent, error) {
	if by.Kind == roster.HolderAgent {
		return roster.Agent{}, fault.New(fault.Forbidden,
			"An agent's key registers that agent again, and no other. Leave the header Authorization "+
				"out, or use an owner's key.")
	}
	if by.ID == "" && n.invite == "" && n.mode != Open {
		if n.mode != ByProof {
			return roster.Agent{}, registrationClosed(n.mode)
		}
		if err := d.checkProof(tx, n, n.key); err != nil {
			return roster.Agent{}, err
		}
		if err := roster.RequireWorkspace(tx, n.tenant); err != nil {
			return roster.Agent{}, fault.New(fault.TenantDenied, "There is no tenant %q here.", n.tenant).About("tenant")
		}
	}
	// Only in the open mode does a registration create a workspace: elsewhere a typing error must not.
	e := roster.Enrolment{
		ID: n.id, Name: n.rosterName(), Workspace: n.tenant, PublicKey: n.key,
		Address:       n.address(d.options.Domains.Own).String(),
		MakeWorkspace: n.mode == Open && by.ID == "" && n.invite == "",
	}
	if by.Kind == roster.HolderOwner {
		e.Owner = by.ID
	}
	a, err := d.core.Roster.Enrol(tx, actor, e, key)
	// Only in the open mode is a workspace created for a new tenant.
	if fault.Is(err, fault.NotFound) {
		return a, fault.New(fault.TenantDenied, "There is no tenant %q here.", n.tenant).About("tenant")
	}
	return a, err
}

// proofWindow is how far the time of a proof may be from now, either way (MSG-19).
const proofWindow = 300 * time.Second

// checkProof verifies that the holder of the key signed this registration: for this provider, this
// address and this moment.
func (d *Directory) checkProof(tx *ledger.Tx, n *newcomer, key ed25519.PublicKey) error {
	if n.proof == nil {
		return registrationClosed(n.mode)
	}
	// The time of the transaction, since Prove compares proofs by it.
	if off := tx.Now().Sub(time.Unix(n.proofAt, 0)); off.Abs() > proofWindow {
		return fault.New(fault.Forbidden, "The proof is signed for %s, and the time is %s. Sign the current time.",
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

// errTaken means that the name belongs to an agent and the caller has not proved to be that agent.
var errTaken = errors.New("taken")

// reissue gives an existing agent a further API key (MSG-18). What counts as proof of identity is
// its owner's key, an operator's token, its current API key with the same public key, or a proof
// with the registered private key. Knowing the public key is none: everybody can.
func (d *Directory) reissue(tx *ledger.Tx, actor, by roster.Identity, n *newcomer, a roster.Agent,
	key *roster.Issued,
) error {
	current := currentKey(a)
	same := current != "" && current == roster.Fingerprint(n.key)
	switch {
	case by.Kind == roster.HolderOwner && a.Owner == by.Name, by.Kind == roster.HolderOperator:
		// An owner or operator may replace a lost key pair.
		// The old key is revoked with it: whoever holds it is locked out from now on.
		if !same {
			if err := d.replaceKey(tx, actor, a, n.key, nil); err != nil {
				return err
			}
		}
	// The caller has an API key that works, and gets a further one.
	case by.Kind == roster.HolderAgent && by.ID == a.ID && same:
	// With the registered key alone: a proof of a new key would prove only that the caller has a key.
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

// currentKey is the fingerprint of the agent's public key in use, "" for an agent without one.
func currentKey(a roster.Agent) string {
	for _, k := range a.PublicKeys {
		if k.RetiredAt == nil {
			return k.Fingerprint
		}
	}
	return ""
}

// replaceKey gives the agent another public key and revokes the one before (MSG-22). by proves that the agent did it
// itself, nil if an owner or operator did.
func (d *Directory) replaceKey(tx *ledger.Tx, actor roster.Identity, a roster.Agent, key ed25519.PublicKey,
	by *amp.Rotation,
) error {
	before := currentKey(a)
	if err := d.core.Roster.UsePublicKey(tx, actor, a, key); err != nil {
		return err
	}
	if before != "" && before != roster.Fingerprint(key) {
		revoke(tx, actor, a.Workspace, before, revoked{a.Address, "key_rotation", roster.Fingerprint(key), by})
	}
	return nil
}

// explainTaken turns the errors of a registration into those of the protocol: name_taken with free
// names, or key_already_registered.
func (d *Directory) explainTaken(ctx context.Context, n *newcomer, err error) error {
	e, isFault := errors.AsType[*fault.Error](err)
	switch {
	// The address of an agent that left is held for a while, which the roster explains in its own words.
	case errors.Is(err, errTaken), isFault && e.Code == fault.AlreadyExists && e.Field == "name":
		message := "The name %q is taken in the tenant %q. If the agent is yours, register it with its current key, its " +
			"owner's key or a proof; else take another name."
		out := fault.New(fault.NameTaken, message, n.rosterName(), n.tenant).About("name")
		if isFault {
			out.Message = e.Message
		}
		return out.With("suggestions", d.suggestions(ctx, n))
	case isFault && e.Code == fault.NameTaken: // by another host
		return e.With("suggestions", d.suggestions(ctx, n))
	case isFault && e.Code == fault.AlreadyExists && e.Field == "public_key":
		return fault.New(fault.KeyAlreadyRegistered, "%s", e.Message).About("public_key")
	case isFault && e.Code == fault.InvalidPayload:
		return fault.New(fault.InvalidField, "%s", e.Message).About(e.Field)
	}
	return err
}

// The words of suggested names, which keep two clients that take the suggestion apart.
var (
	adjectives = []string{"cosmic", "quiet", "amber", "swift", "gentle", "bright", "northern", "copper"}
	nouns      = []string{"wolf", "heron", "otter", "falcon", "maple", "meadow", "signal", "comet"}
)

// suggestions are up to three names that are free now; nothing reserves them.
func (d *Directory) suggestions(ctx context.Context, n *newcomer) []string {
	var free []string
	try := func(name string) {
		next := *n
		next.name = name
		address := next.address(d.options.Domains.Own)
		_, err := d.core.Roster.Find(ctx, address.String())
		if elsewhere, _ := d.options.Homes.Elsewhere(ctx, address); fault.Is(err, fault.NotFound) && !elsewhere &&
			len(name) <= 63 {
			free = append(free, name)
		}
	}
	// name-2, name-3 and so on; the third is made of words, in case all of those are taken.
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

// generatedSecret is the derived secret of the agent's webhook, "" if the agent has its own or no
// webhook.
func (d *Directory) generatedSecret(workspace, agentID string, p Profile) string {
	if p.WebhookURL == "" || len(p.Secret) > 0 {
		return ""
	}
	return d.core.Outbox.SecretFor(workspace, agentID, 0).Reveal()
}

// registered is the answer about an agent with its new key.
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
