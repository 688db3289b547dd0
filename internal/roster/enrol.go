package roster

import (
	"context"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// The functions here are for protocols in which agents register themselves. They work in the
// protocol's own transaction, so that an agent and what the protocol knows of it are there
// together or not at all. The protocol has to use Roster.Write, which empties the cache.

// Enrolment is an agent that registers itself, through a protocol that has checked that it
// may.
type Enrolment struct {
	ID            string // from NewAgentID
	Name          string // unique in its workspace; the protocol has checked its form
	Workspace     string
	MakeWorkspace bool   // if there is none of that name
	Address       string // "" for name@workspace.provider
	Owner         string // the owner's id, "" for none
	PublicKey     ed25519.PublicKey
}

// NewAgentID makes the id of an agent.
func NewAgentID() string { return id.New("agent") }

// NewKey draws a key of the kind, for an agent that is enrolled or proves itself.
func NewKey(kind KeyKind) Issued { return prepare(kind) }

// Enrol adds an agent with one key, in the caller's transaction, which must be one of
// Roster.Write. Its trust is standard: only an operator raises it.
func (r *Roster) Enrol(tx *ledger.Tx, actor Identity, n Enrolment, key *Issued) (Agent, error) {
	if n.MakeWorkspace {
		if err := ensureWorkspace(tx, actor, n.Workspace); err != nil {
			return Agent{}, err
		}
	}
	body, err := r.admit(tx,
		NewAgent{
			Name: n.Name, Workspace: n.Workspace, Owner: n.Owner, Trust: "standard", Labels: map[string]string{},
			address: n.Address,
		})
	if err != nil {
		return Agent{}, err
	}
	a := Agent{ID: n.ID, Name: n.Name, Workspace: n.Workspace}
	if err := checkUnused(tx, a.ID, n.PublicKey); err != nil {
		return Agent{}, err
	}
	tx.Append(ledger.Event{Workspace: n.Workspace, Kind: "agent.added", Actor: actor.Actor(), Subject: a.ID, Body: body})
	usePublicKey(tx, actor, a, n.PublicKey)
	r.Reissue(tx, actor, a, key)
	return r.agent(tx.Prover(), n.Workspace, a.ID)
}

// ensureWorkspace adds a workspace unless it exists, for protocols that let agents bring their
// own tenant.
func ensureWorkspace(tx *ledger.Tx, actor Identity, name string) error {
	if err := checkName(name); err != nil {
		return fault.From(err).About("tenant")
	}
	there, err := exists(tx, "SELECT 1 FROM workspace WHERE name = $1", name)
	if err == nil && !there {
		tx.Append(ledger.Event{Workspace: name, Kind: "workspace.added", Actor: actor.Actor(), Subject: name, Body: empty{}})
	}
	return err
}

// Reissue gives an agent a further key, in the caller's transaction.
func (r *Roster) Reissue(tx *ledger.Tx, actor Identity, a Agent, key *Issued) {
	issue(tx, actor, a.Workspace, a.ID, key)
	key.Key.Agent, key.Key.Workspace = a.Name, a.Workspace
}

// Prove records the time in a proof by which an agent has shown that it holds its private
// key. A proof can be used once: a time that is not later than the last one is refused.
func (r *Roster) Prove(tx *ledger.Tx, actor Identity, a Agent, at int64) error {
	var last int64
	if err := tx.QueryRow("SELECT proved_at FROM agent WHERE id = $1", []any{a.ID}, &last); err != nil {
		return err
	}
	if at <= last {
		return fault.New(fault.Forbidden, "This proof was used before. Sign a new one with the current time.").About("proof")
	}
	tx.Append(ledger.Event{
		Workspace: a.Workspace, Kind: "agent.proved", Actor: actor.Actor(), Subject: a.ID,
		Body: agentProved{at},
	})
	return nil
}

// UsePublicKey makes a key the agent's current one, in the caller's transaction.
func (r *Roster) UsePublicKey(tx *ledger.Tx, actor Identity, a Agent, key ed25519.PublicKey) error {
	if err := checkUnused(tx, a.ID, key); err != nil {
		return err
	}
	usePublicKey(tx, actor, a, key)
	return nil
}

// AgentIn finds one agent of a workspace by name or id in the caller's transaction.
func (r *Roster) AgentIn(tx *ledger.Tx, workspace, name string) (Agent, error) {
	return r.agent(tx.Prover(), workspace, name)
}

// OwnedBy lists the agents of an owner, by id.
func (r *Roster) OwnedBy(ctx context.Context, ownerID string) ([]Agent, error) {
	return r.agents(r.db.Reading(ctx), "a.owner = $1 ORDER BY a.name LIMIT 1000", ownerID)
}

// NamedBefore lists the addresses of up to two agents whose names begin with the given one
// and a dot: those that are registered below a scope. Two are enough to tell whether a short
// name is unique.
func (r *Roster) NamedBefore(ctx context.Context, workspace, name string) ([]string, error) {
	return store.All(r.db.Reading(ctx), store.Text,
		"SELECT address FROM agent WHERE workspace = $1 AND name > $2 AND name < $3 ORDER BY name LIMIT 2", workspace,
		name+".", name+"/")
}

// EncodePublicKey writes a key as PEM.
func EncodePublicKey(key ed25519.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		return "" // only for what is no key
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}
