package directory

import (
	"context"
	"errors"
	"strings"
	"sync"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/homes"
	"signalbox/internal/protocol"
	"signalbox/internal/recall"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The modes of registration: what a new agent has to bring. An operator's token and an owner's
// key are accepted in every mode.
const (
	Open       = "open"     // nothing; a new tenant becomes a workspace
	ByOwner    = "owner"    // an owner's key
	ByInvite   = "invite"   // an invite code
	ByProof    = "verified" // a proof of its private key, in a tenant that exists
	ByOperator = "admin"    // an operator's token
)

// Modes are the values of mail.registration.
var Modes = []string{Open, ByOwner, ByInvite, ByProof, ByOperator}

// Options are the settings of the directory.
type Options struct {
	Domains amp.Domains
	Mode    string // one of Modes
	// Host is the id of this host in a mesh, "" for none. Addresses with it in place of the
	// tenant mean agents of the default workspace.
	Host string
	// IsHost reports whether a tenant is the id of another host, which stands for the default workspace in the same way.
	IsHost func(tenant string) bool
	// Homes knows which addresses other hosts of the mesh have.
	Homes *homes.Homes
}

// Directory is the registered agents of this server. Its methods may be called from any
// goroutine. Call Load before it is used, and Follow with every entry after that.
type Directory struct {
	options Options
	core    protocol.Core

	// profiles is a view of the ledger, by the agent's id: every message asks for the recipient's.
	profiles recall.View[Profile]
	duties   recall.View[Duties]
	read     sync.Map // by the agent's id, what DutiesNow has read last
	given    sync.Map // by an agent's id and key, whether somebody else gave it the key; see KeyIsItsOwn
}

// New makes a directory over a core whose ledger has Apply.
func New(core protocol.Core, o Options) *Directory {
	return &Directory{options: o, core: core}
}

// Active refuses an agent that is suspended (MSG-53).
func Active(who roster.Identity) error {
	if who.Suspended {
		return fault.New(fault.AgentSuspended, "This agent is suspended. An operator can resume it; its queue is kept.")
	}
	return nil
}

// Find finds the agent of an address in its home form: exactly, else without the scope that was
// given, else the only agent of that name with a scope (MSG-14). An ambiguous address is not
// found, rather than delivered to one of several.
func (d *Directory) Find(ctx context.Context, a amp.Address) (roster.Identity, error) {
	// The exact address first, so that a scope is never dropped where it matters.
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
	if a.Tenant == d.options.Host { // other hosts of the mesh may write our id as the tenant
		a.Tenant = roster.DefaultWorkspace
		return d.Find(ctx, a)
	}
	scoped, listErr := d.core.Roster.NamedBefore(ctx, a.Tenant, a.Name)
	if listErr != nil || len(scoped) != 1 {
		return found, errors.Join(err, listErr)
	}
	return d.core.Roster.Find(ctx, scoped[0])
}

// FindFor is Find for an agent of a workspace. An agent of another workspace that is not open to it is not found, in the
// same words and as fast as one that does not exist.
func (d *Directory) FindFor(ctx context.Context, workspace string, a amp.Address) (roster.Identity, error) {
	reached, err := d.core.Roster.Reaches(ctx, workspace, d.Workspace(a.Tenant))
	if err != nil {
		return roster.Identity{}, err
	}
	if !reached {
		return roster.Identity{}, roster.NoAddress(a.String())
	}
	found, err := d.Find(ctx, a)
	if err == nil && found.Workspace != d.Workspace(a.Tenant) { // one that is named like a host
		reached, err = d.core.Roster.Reaches(ctx, workspace, found.Workspace)
	}
	if err == nil && !reached {
		return roster.Identity{}, roster.NoAddress(a.String())
	}
	return found, err
}

// Workspace is the workspace that a tenant of an address of ours stands for.
func (d *Directory) Workspace(tenant string) string {
	if tenant == d.options.Host || d.options.IsHost(tenant) {
		return roster.DefaultWorkspace
	}
	return tenant
}

// Agent finds an agent by id, name or address, in the workspaces that the calling operator may see.
func (d *Directory) Agent(ctx context.Context, named string) (roster.Agent, error) {
	name, workspace := named, wire.Scope(ctx)
	// An address names its tenant; a bare name is looked for in the operator's workspace, or in the one
	// that has an agent of that id.
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

// IDs finds the ids of agents by name, id or address, in the workspaces that the calling operator
// may see. A name may be that of several agents; none is no error.
func (d *Directory) IDs(ctx context.Context, name string) ([]string, error) {
	// An id or a bare name parses as no address.
	if address, err := d.options.Domains.Parse(name); err == nil && strings.Contains(name, "@") {
		found, err := d.Find(ctx, d.options.Domains.Home(address))
		if fault.Is(err, fault.NotFound) || err == nil && !wire.InScope(ctx, found.Workspace) {
			return nil, nil
		}
		return []string{found.ID}, err
	}
	return d.core.Roster.AgentIDs(ctx, wire.Scope(ctx), name)
}

// Profile is the profile of an agent, from memory; the zero value for an agent without one.
func (d *Directory) Profile(agentID string) Profile {
	p, _ := d.profiles.Get(agentID)
	return p
}

// Load reads all profiles and duties into memory, in place of what was there.
func (d *Directory) Load(ctx context.Context) error {
	// Duties first: an agent whose profile is known is held to what it has to keep.
	if err := d.duties.Load(ctx, d.core.Ledger, "JOIN mail_duties p ON p.seq = e.seq"); err != nil {
		return err
	}
	return d.profiles.Load(ctx, d.core.Ledger, "JOIN mail_profile p ON p.seq = e.seq")
}

// Follow updates profiles and duties in memory for one entry, which any node may have written.
func (d *Directory) Follow(e *ledger.Entry) error {
	switch e.Kind {
	case kindProfile:
		return d.profiles.Follow(e)
	case kindDuties:
		return d.duties.Follow(e)
	}
	return nil
}
