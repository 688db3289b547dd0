package directory

import (
	"context"
	"errors"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The modes of registration. An operator's token and an owner's key open every one.
const (
	Open       = "open"     // anybody, in any tenant
	ByOwner    = "owner"    // with an owner's key
	ByInvite   = "invite"   // with an invite
	ByProof    = "verified" // who proves that the private key is theirs, in a tenant that is there
	ByOperator = "admin"    // operators alone
)

// Modes lists them.
var Modes = []string{Open, ByOwner, ByInvite, ByProof, ByOperator}

// Options are what an operator sets.
type Options struct {
	Domains amp.Domains
	Mode    string // one of Modes
	// Host is the id of this host in a mesh, "" for none. Other hosts write it in the place of
	// the tenant, for agents of the default workspace.
	Host string
}

// Directory is the agents of this server, as mail knows them.
type Directory struct {
	options Options
	core    protocol.Core

	profiles ledger.View[Profile] // by the agent's id
}

// New makes a directory over a core whose ledger has Apply.
func New(core protocol.Core, o Options) *Directory {
	return &Directory{options: o, core: core}
}

// Active refuses an agent that is suspended.
func Active(who roster.Identity) error {
	if who.Suspended {
		return fault.New(fault.AgentSuspended, "This agent is suspended. An operator can resume it; its queue is kept.")
	}
	return nil
}

// Find finds the agent of a local address: the one that has it, or the only one that has
// it with a scope, which clients leave out.
func (d *Directory) Find(ctx context.Context, a amp.Address) (roster.Identity, error) {
	found, err := d.core.Roster.Find(ctx, a.String())
	if !fault.Is(err, fault.NotFound) {
		return found, err
	}
	if a.Scope != "" {
		found, shortErr := d.core.Roster.Find(ctx, a.Short())
		if !fault.Is(shortErr, fault.NotFound) {
			return found, shortErr
		}
		return found, err
	}
	if a.Tenant == d.options.Host { // as other hosts write agents of ours
		a.Tenant = roster.DefaultWorkspace
		return d.Find(ctx, a)
	}
	scoped, listErr := d.core.Roster.NamedBefore(ctx, a.Tenant, a.Name)
	if listErr != nil || len(scoped) != 1 {
		return found, errors.Join(err, listErr)
	}
	return d.core.Roster.Find(ctx, scoped[0])
}

// Agent finds an agent by id, name or address, as far as the calling operator may see it.
func (d *Directory) Agent(ctx context.Context, named string) (roster.Agent, error) {
	name, workspace := named, wire.Scope(ctx)
	if address, err := d.options.Domains.Parse(name); err == nil {
		name, workspace = d.options.Domains.Home(address).Name, address.Tenant
	} else if workspace == "" {
		workspace = roster.DefaultWorkspace
		if found, err := d.core.Roster.WorkspaceOfAgent(ctx, name); err == nil && found != "" {
			workspace = found
		}
	}
	if !wire.InScope(ctx, workspace) {
		return roster.Agent{}, fault.New(fault.NotFound, "There is no agent %.254q for your token.", named)
	}
	return d.core.Roster.Agent(ctx, workspace, name)
}

// IDs finds agents by name, id or address, as far as the calling operator may see them.
func (d *Directory) IDs(ctx context.Context, name string) ([]string, error) {
	if address, err := d.options.Domains.Parse(name); err == nil && strings.Contains(name, "@") {
		found, err := d.Find(ctx, d.options.Domains.Home(address))
		if fault.Is(err, fault.NotFound) || err == nil && !wire.InScope(ctx, found.Workspace) {
			return nil, nil
		}
		return []string{found.ID}, err
	}
	return d.core.Roster.AgentIDs(ctx, wire.Scope(ctx), name)
}

// Profile is what an agent says of itself.
func (d *Directory) Profile(agentID string) Profile {
	p, _ := d.profiles.Get(agentID)
	return p
}

// Load reads every profile there is.
func (d *Directory) Load(ctx context.Context) error {
	return d.profiles.Load(ctx, d.core.Ledger, "JOIN mail_profile p ON p.seq = e.seq")
}

// Follow does what follows on this node from an entry that another may have written.
func (d *Directory) Follow(e *ledger.Entry) error {
	if e.Kind != kindProfile {
		return nil
	}
	return d.profiles.Follow(e)
}
