package roster

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"time"

	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/id"
	"github.com/signalbox/signalbox/internal/ledger"
)

// grace is how long a key that was replaced goes on working.
const grace = 24 * time.Hour

// Issued is a new key with its secret, which is shown this once.
type Issued struct {
	Key    Key
	Secret string
}

// NewAgent is what an agent is made from.
type NewAgent struct {
	Name      string            `json:"name"`
	Workspace string            `json:"workspace,omitempty"`
	Trust     string            `json:"trust,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
}

func (n *NewAgent) check() error {
	if n.Workspace == "" {
		n.Workspace = DefaultWorkspace
	}
	if n.Trust == "" {
		n.Trust = "standard"
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if err := checkName("name", n.Name); err != nil {
		return err
	}
	if err := checkLabels(n.Labels); err != nil {
		return err
	}
	return oneOf("trust", n.Trust, TrustLevels)
}

func checkLabels(labels map[string]string) error {
	if len(labels) > 64 {
		return fault.New(fault.InvalidPayload, "There are %d labels; the most is 64.", len(labels)).About("labels")
	}
	for k, v := range labels {
		if k == "" || len(k) > 63 || len(v) > 255 {
			return fault.New(fault.InvalidPayload, "The label %.80q is too long, or has no name. A name has 1 to 63 bytes, a value at most 255.", k).About("labels")
		}
	}
	return nil
}

// AddAgent adds an agent with one key of each kind.
func (r *Roster) AddAgent(ctx context.Context, by Identity, n NewAgent) (Agent, []Issued, error) {
	if err := n.check(); err != nil {
		return Agent{}, nil, err
	}
	a := Agent{ID: id.New("agent"), Name: n.Name, Workspace: n.Workspace, Trust: n.Trust, Labels: n.Labels}
	keys := []Issued{prepare(SignalKey), prepare(MailKey)}
	err := r.write(ctx, func(tx *ledger.Tx) error {
		if err := mustExist(tx, n.Workspace); err != nil {
			return err
		}
		if taken, err := exists(tx, "SELECT 1 FROM agent WHERE workspace = $1 AND name = $2", n.Workspace, n.Name); err != nil {
			return err
		} else if taken {
			return fault.New(fault.AlreadyExists, "Workspace %q has an agent %q already. Choose another name, or issue a key for that agent.", n.Workspace, n.Name).About("name")
		}
		a.AddedAt = tx.Now()
		tx.Append(ledger.Event{Workspace: n.Workspace, Kind: "agent.added", Actor: by.Actor(), Subject: a.ID, Body: agentAdded{n.Name, n.Trust, n.Labels}})
		for i := range keys {
			issue(tx, by, n.Workspace, a.ID, &keys[i])
			keys[i].Key.Agent, keys[i].Key.Workspace = a.Name, a.Workspace
		}
		return nil
	})
	return a, keys, err
}

func mustExist(tx *ledger.Tx, workspace string) error {
	ok, err := exists(tx, "SELECT 1 FROM workspace WHERE name = $1", workspace)
	if err == nil && !ok {
		return fault.New(fault.NotFound, "There is no workspace %q. The one that is always there is %q.", workspace, DefaultWorkspace).About("workspace")
	}
	return err
}

func exists(tx *ledger.Tx, query string, args ...any) (bool, error) {
	var one int
	err := tx.QueryRow(query, args, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// prepare draws a key outside of the transaction, which may run twice.
func prepare(kind KeyKind) Issued {
	secret := newSecret(kind)
	return Issued{Secret: secret, Key: Key{ID: id.New("key"), Kind: kind, Hint: hint(secret)}}
}

func issue(tx *ledger.Tx, by Identity, workspace, holder string, k *Issued) {
	k.Key.IssuedAt = tx.Now()
	tx.Append(ledger.Event{
		Workspace: workspace, Kind: "key.issued", Actor: by.Actor(), Subject: k.Key.ID,
		Body: keyIssued{k.Key.Kind, holder, hex.EncodeToString(hashSecret(k.Secret)), k.Key.Hint},
	})
}

// AgentChange is what can be changed of an agent; nil fields stay as they are.
type AgentChange struct {
	Trust     *string            `json:"trust,omitempty"`
	Labels    *map[string]string `json:"labels,omitempty"`
	Suspended *bool              `json:"suspended,omitempty"`
}

// ChangeAgent changes an agent. Suspending it refuses its keys from that moment on.
func (r *Roster) ChangeAgent(ctx context.Context, by Identity, workspace, name string, c AgentChange) (Agent, error) {
	if c.Trust != nil {
		if err := oneOf("trust", *c.Trust, TrustLevels); err != nil {
			return Agent{}, err
		}
	}
	if c.Labels != nil {
		if err := checkLabels(*c.Labels); err != nil {
			return Agent{}, err
		}
	}
	var a Agent
	err := r.onAgent(ctx, workspace, name, func(tx *ledger.Tx, found Agent) error {
		a = found
		if c.Trust != nil {
			a.Trust = *c.Trust
		}
		if c.Labels != nil {
			a.Labels = *c.Labels
		}
		if c.Trust != nil || c.Labels != nil {
			tx.Append(ledger.Event{Workspace: a.Workspace, Kind: "agent.changed", Actor: by.Actor(), Subject: a.ID, Body: agentChanged{a.Trust, a.Labels}})
		}
		if c.Suspended != nil && *c.Suspended != a.Suspended {
			a.Suspended = *c.Suspended
			kind := "agent.resumed"
			if a.Suspended {
				kind = "agent.suspended"
			}
			tx.Append(ledger.Event{Workspace: a.Workspace, Kind: kind, Actor: by.Actor(), Subject: a.ID, Body: empty{}})
		}
		return nil
	})
	return a, err
}

// RemoveAgent removes an agent and its keys. What it did stays in the ledger.
func (r *Roster) RemoveAgent(ctx context.Context, by Identity, workspace, name string) error {
	return r.onAgent(ctx, workspace, name, func(tx *ledger.Tx, a Agent) error {
		tx.Append(ledger.Event{Workspace: a.Workspace, Kind: "agent.removed", Actor: by.Actor(), Subject: a.ID, Body: empty{}})
		return nil
	})
}

// IssueAgentKey makes a further key for an agent.
func (r *Roster) IssueAgentKey(ctx context.Context, by Identity, workspace, name, kind string) (Issued, error) {
	k, err := agentKeyKind(kind)
	if err != nil {
		return Issued{}, err
	}
	out := prepare(k)
	err = r.onAgent(ctx, workspace, name, func(tx *ledger.Tx, a Agent) error {
		issue(tx, by, a.Workspace, a.ID, &out)
		out.Key.Agent, out.Key.Workspace = a.Name, a.Workspace
		return nil
	})
	return out, err
}

// onAgent finds the agent inside the transaction, so that what is decided about it
// holds when it is written.
func (r *Roster) onAgent(ctx context.Context, workspace, name string, fn func(*ledger.Tx, Agent) error) error {
	return r.write(ctx, func(tx *ledger.Tx) error {
		a, err := scanAgent(func(dest ...any) error {
			return tx.QueryRow(findAgent, []any{workspace, name}, dest...)
		})
		if errors.Is(err, sql.ErrNoRows) {
			return noAgent(workspace, name)
		}
		if err != nil {
			return err
		}
		return fn(tx, a)
	})
}

// RotateKey makes a key that replaces another, which works for 24 hours more.
func (r *Roster) RotateKey(ctx context.Context, by Identity, keyID string) (Issued, error) {
	var out Issued
	err := r.onKey(ctx, by, keyID, func(tx *ledger.Tx, old heldKey) error {
		if old.ExpiresAt != nil || old.RevokedAt != nil {
			return fault.New(fault.Conflict, "The key %s was rotated or revoked already. Rotate the one that is in use.", keyID)
		}
		// Drawn again when the transaction is run again; only the last one counts.
		out = prepare(old.Kind)
		out.Key.Agent, out.Key.Workspace, out.Key.Operator = old.Agent, old.Workspace, old.Operator
		issue(tx, by, old.Workspace, old.holder, &out)
		tx.Append(ledger.Event{Workspace: old.Workspace, Kind: "key.rotated", Actor: by.Actor(), Subject: old.ID, Body: keyRetired{tx.Now().Add(grace).UnixMicro()}})
		return nil
	})
	return out, err
}

// RevokeKey refuses a key from now on.
func (r *Roster) RevokeKey(ctx context.Context, by Identity, keyID string) (Key, error) {
	var out Key
	err := r.onKey(ctx, by, keyID, func(tx *ledger.Tx, old heldKey) error {
		out = old.Key
		if old.RevokedAt != nil {
			return nil
		}
		now := tx.Now()
		out.RevokedAt = &now
		tx.Append(ledger.Event{Workspace: old.Workspace, Kind: "key.revoked", Actor: by.Actor(), Subject: old.ID, Body: keyRetired{now.UnixMicro()}})
		return nil
	})
	return out, err
}

type heldKey struct {
	Key
	holder string
}

func (r *Roster) onKey(ctx context.Context, by Identity, keyID string, fn func(*ledger.Tx, heldKey) error) error {
	return r.write(ctx, func(tx *ledger.Tx) error {
		var held heldKey
		k, err := scanKey(func(dest ...any) error {
			return tx.QueryRow("SELECT k.holder, "+keyColumns+" WHERE k.id = $1", []any{keyID}, append([]any{&held.holder}, dest...)...)
		})
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if err != nil || by.Workspace != "" && by.Workspace != k.Workspace {
			return fault.New(fault.NotFound, "There is no key %.80q. `signalbox keys ls` lists the ids of those there are.", keyID)
		}
		if k.Operator != "" && !by.Role.Allows(Admin) {
			return fault.New(fault.Forbidden, "Only an admin may change an operator's token.")
		}
		held.Key = k
		return fn(tx, held)
	})
}
