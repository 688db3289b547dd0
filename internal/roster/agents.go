package roster

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"regexp"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/scope"
	"signalbox/internal/wire"
)

// Every change of an agent is one transaction: it finds the agent, checks, appends, and reads
// the agent back as it then is, so that the answer is what was committed. Names are looked up
// inside of the transaction, because an agent may be removed and another added under its name.

// NewAgent is the request to add an agent.
type NewAgent struct {
	Name      string            `json:"name"`
	Workspace string            `json:"workspace,omitempty"`
	Owner     string            `json:"owner,omitempty" doc:"the user whose it is, of the same workspace"`
	ActsFor   []string          `json:"acts_for,omitempty" doc:"further users for whom it may act, or [\"anybody\"]"`
	Scopes    *[]string         `json:"scopes,omitzero" doc:"what it may do at the most; everything when absent"`
	Trust     string            `json:"trust,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	PublicKey string            `json:"public_key,omitempty"` // PEM, or 64 hex digits
	// OIDCClient is by what tokens name the agent as the one who acts.
	OIDCClient string `json:"oidc_client,omitempty" doc:"its client id at an issuer of tokens"`

	address string // when it is not made from name and workspace
}

// check fills in the defaults and checks everything that needs no table.
func (n *NewAgent) check() error {
	if n.Trust == "" {
		n.Trust = "standard"
	}
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	if err := checkName(n.Name); err != nil {
		return err
	}
	if err := checkLabels(n.Labels); err != nil {
		return err
	}
	if n.Scopes != nil {
		if err := scope.Check(*n.Scopes); err != nil {
			return err
		}
	}
	if err := checkClient(n.OIDCClient); err != nil {
		return err
	}
	return oneOf("trust", n.Trust, TrustLevels)
}

var clientForm = regexp.MustCompile(`^[[:graph:]]{0,255}$`)

// checkClient checks the form of a client id, "" for none.
func checkClient(client string) error {
	if !clientForm.MatchString(client) {
		return fault.New(fault.InvalidPayload, "The oidc_client should be the agent's client id at the issuer, at most 255 "+
			"characters without spaces, such as billing-agent. It is %.80q.", client).About("oidc_client")
	}
	return nil
}

// clientIsFree refuses a client id that another agent of the workspace has: a token names one agent.
func clientIsFree(tx *ledger.Tx, workspace, client, agentID string) error {
	taken, err := exists(tx, "SELECT 1 FROM agent WHERE workspace = $1 AND oidc_client = $2 AND oidc_client <> '' AND id <> $3",
		workspace, client, agentID)
	if err == nil && taken {
		return fault.New(fault.AlreadyExists, "Another agent of workspace %q has the oidc_client %q already.", workspace,
			client).About("oidc_client")
	}
	return err
}

// checkLabels bounds labels: rules read them with every decision.
func checkLabels(labels map[string]string) error {
	if len(labels) > 64 {
		return fault.New(fault.InvalidPayload, "There are %d labels; the most is 64.", len(labels)).About("labels")
	}
	for k, v := range labels {
		if k == "" || len(k) > 63 || len(v) > 255 {
			return fault.New(fault.InvalidPayload,
				"The label %.80q is too long, or has no name. A name has 1 to 63 bytes, a value at most 255.", k).About("labels")
		}
	}
	if role, has := labels[RoleLabel]; has && !slices.Contains(TaskRoles, role) {
		return fault.New(fault.InvalidPayload, "There is no role %.80q in tasks. %s", role,
			fault.DidYouMean(role, TaskRoles)).About("labels")
	}
	return nil
}

// RoleLabel is the label that says which role an agent plays in tasks (TSK-46). Operators set it; an agent cannot change
// its own labels, so it cannot promote itself.
const RoleLabel = "role"

// TaskRoles are the roles there are.
var TaskRoles = []string{"coordinator", "executor", "reviewer"}

// AddAgent adds an agent with one key of each kind, to the workspace that WorkspaceOf
// returns. Ids and secrets are drawn before the transaction, which may run twice.
func (r *Roster) AddAgent(ctx context.Context, by Identity, n NewAgent) (Agent, []Issued, error) {
	var err error
	if n.Workspace, err = WorkspaceOf(ctx, n.Workspace); err != nil {
		return Agent{}, nil, err
	}
	if err := n.check(); err != nil {
		return Agent{}, nil, err
	}
	var public ed25519.PublicKey
	if n.PublicKey != "" {
		if public, err = ParsePublicKey(n.PublicKey); err != nil {
			return Agent{}, nil, err
		}
	}
	fresh := Agent{ID: id.New("agent"), Name: n.Name, Workspace: n.Workspace}
	keys := []Issued{prepare(SignalKey), prepare(MailKey)}
	var a Agent
	err = r.Write(ctx, func(tx *ledger.Tx) error {
		body, err := r.admit(tx, n)
		if err != nil {
			return err
		}
		if err := checkUnused(tx, fresh.ID, public); err != nil {
			return err
		}
		tx.Append(ledger.Event{Workspace: n.Workspace, Kind: "agent.added", Actor: by.Actor(), Subject: fresh.ID, Body: body})
		usePublicKey(tx, by, fresh, public)
		for i := range keys {
			issue(tx, by, n.Workspace, fresh.ID, &keys[i])
			keys[i].Key.Agent, keys[i].Key.Workspace = n.Name, n.Workspace
		}
		a, err = r.agent(tx.Prover(), n.Workspace, fresh.ID)
		return err
	})
	return a, keys, err
}

// admit checks what only the tables know: that the workspace and the owner exist, that name
// and address are free. It returns the body of agent.added.
func (r *Roster) admit(tx *ledger.Tx, n NewAgent) (body agentAdded, err error) {
	if err := RequireWorkspace(tx, n.Workspace); err != nil {
		return body, err
	}
	if taken, err := exists(tx, "SELECT 1 FROM agent WHERE workspace = $1 AND name = $2", n.Workspace,
		n.Name); err != nil {
		return body, err
	} else if taken {
		return body, fault.New(fault.AlreadyExists,
			"Workspace %q has an agent %q already. Choose another name, or issue a key for that agent.", n.Workspace,
			n.Name).About("name")
	}
	body = agentAdded{
		Name: n.Name, Address: cmp.Or(n.address, n.Name+"@"+n.Workspace+"."+r.provider), Trust: n.Trust,
		Labels: n.Labels,
	}
	if held, err := exists(tx, "SELECT 1 FROM address_hold WHERE address = $1 AND until_at > $2", body.Address,
		tx.Now().UnixMicro()); err != nil {
		return body, err
	} else if held {
		return body, fault.New(fault.AlreadyExists,
			"The address %s belonged to another agent until recently and is reserved, so that nobody "+
				"gets that agent's mail. Choose another name.", body.Address).About("name")
	}
	if n.Owner != "" {
		owner, err := findUser(tx.Prover(), n.Workspace, n.Owner)
		if err != nil {
			return body, err
		}
		body.Owner = owner.ID
	}
	if n.Scopes != nil {
		body.Scopes = append([]string{}, *n.Scopes...)
	}
	body.OIDCClient = n.OIDCClient
	if err := clientIsFree(tx, n.Workspace, n.OIDCClient, ""); err != nil {
		return body, err
	}
	if len(n.ActsFor) > 0 {
		body.ActsFor, err = r.resolveUsers(tx.Prover(), n.Workspace, n.ActsFor)
	}
	return body, err
}

// RequireWorkspace is an error if the workspace does not exist.
func RequireWorkspace(tx *ledger.Tx, workspace string) error {
	ok, err := exists(tx, "SELECT 1 FROM workspace WHERE name = $1", workspace)
	if err == nil && !ok {
		return fault.New(fault.NotFound, "There is no workspace %q. The one that is always there is %q.", workspace,
			DefaultWorkspace).About("workspace")
	}
	return err
}

// exists reports whether a query has a row.
func exists(tx *ledger.Tx, query string, args ...any) (bool, error) {
	var one int
	err := tx.QueryRow(query, args, &one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// AgentChange is what can be changed of an agent; nil fields stay as they are.
type AgentChange struct {
	Trust     *string            `json:"trust,omitzero"`
	Labels    *map[string]string `json:"labels,omitzero"`
	RateLimit wire.Raw           `json:"rate_limit,omitempty"` // a number, or "default"
	PublicKey *string            `json:"public_key,omitzero"`
	Suspended *bool              `json:"suspended,omitzero"`
	ActsFor   *[]string          `json:"acts_for,omitzero" doc:"all users for whom it may act beside its owner"`
	Scopes    *[]string          `json:"scopes,omitzero" doc:"what it may do at the most; [\"*\"] is everything"`
	// OIDCClient is by what tokens name the agent as the one who acts.
	OIDCClient *string `json:"oidc_client,omitzero" doc:"its client id at an issuer of tokens; \"\" removes it"`
}

// ChangeAgent changes an agent. A suspended agent still authenticates; the policy blocks
// what it does, so that it is told why.
func (r *Roster) ChangeAgent(ctx context.Context, by Identity, workspace, name string, c AgentChange) (Agent, error) {
	change, err := c.parse()
	if err != nil {
		return Agent{}, err
	}
	var a Agent
	err = r.onAgent(ctx, workspace, name, func(tx *ledger.Tx, found Agent) (err error) {
		if err := checkUnused(tx, found.ID, change.public); err != nil {
			return err
		}
		if c.ActsFor != nil {
			if change.actsFor, err = r.resolveUsers(tx.Prover(), workspace, *c.ActsFor); err != nil {
				return err
			}
		}
		if c.OIDCClient != nil {
			if err := clientIsFree(tx, workspace, *c.OIDCClient, found.ID); err != nil {
				return err
			}
		}
		change.append(tx, by, found)
		a, err = r.agent(tx.Prover(), workspace, found.ID)
		return err
	})
	return a, err
}

// parsedChange is a change whose values were checked.
type parsedChange struct {
	AgentChange
	limits    bool // says something about the rate limit
	rateLimit *int64
	public    ed25519.PublicKey
	actsFor   []string // ids
}

// parse checks the values of a change before the transaction.
func (c AgentChange) parse() (p parsedChange, err error) {
	p.AgentChange = c
	if c.Trust != nil {
		if err := oneOf("trust", *c.Trust, TrustLevels); err != nil {
			return p, err
		}
	}
	if c.Labels != nil {
		if err := checkLabels(*c.Labels); err != nil {
			return p, err
		}
	}
	if c.Scopes != nil {
		if err := scope.Check(*c.Scopes); err != nil {
			return p, err
		}
	}
	if c.OIDCClient != nil {
		if err := checkClient(*c.OIDCClient); err != nil {
			return p, err
		}
	}
	if p.limits = len(c.RateLimit) > 0 && string(c.RateLimit) != "null"; p.limits {
		if p.rateLimit, err = parseRateLimit(c.RateLimit); err != nil {
			return p, err
		}
	}
	if c.PublicKey != nil {
		p.public, err = ParsePublicKey(*c.PublicKey)
	}
	return p, err
}

// append appends the entries of the change: one each for the settings, the suspension and the
// public key, and none for what stays as it is.
func (c parsedChange) append(tx *ledger.Tx, by Identity, a Agent) {
	if c.Trust != nil || c.Labels != nil || c.limits || c.ActsFor != nil || c.Scopes != nil ||
		c.OIDCClient != nil {
		body := a.settings()
		if c.Trust != nil {
			body.Trust = *c.Trust
		}
		if c.Labels != nil {
			body.Labels = *c.Labels
		}
		if c.limits {
			body.RateLimit = c.rateLimit
		}
		if c.ActsFor != nil {
			body.ActsFor = c.actsFor
		}
		if c.Scopes != nil {
			body.Scopes = append([]string{}, *c.Scopes...)
		}
		if c.OIDCClient != nil {
			body.OIDCClient = *c.OIDCClient
		}
		tx.Append(ledger.Event{Workspace: a.Workspace, Kind: "agent.changed", Actor: by.Actor(), Subject: a.ID, Body: body})
	}
	if c.Suspended != nil && *c.Suspended != a.Suspended {
		if *c.Suspended {
			suspend(tx, by.Actor(), a, agentSuspended{})
		} else {
			tx.Append(ledger.Event{
				Workspace: a.Workspace, Kind: "agent.resumed", Actor: by.Actor(), Subject: a.ID,
				Body: empty{},
			})
		}
	}
	usePublicKey(tx, by, a, c.public)
}

// Grant gives an agent a level of trust, in the caller's transaction.
func (r *Roster) Grant(tx *ledger.Tx, actor, workspace, agentID, trust string) error {
	a, err := r.agent(tx.Prover(), workspace, agentID)
	if err != nil {
		return err
	}
	body := a.settings()
	body.Trust = trust
	tx.Append(ledger.Event{Workspace: a.Workspace, Kind: "agent.changed", Actor: actor, Subject: a.ID, Body: body})
	return nil
}

// settings are what can be changed of an agent, as they are.
func (a *Agent) settings() agentChanged {
	return agentChanged{a.Trust, a.Labels, a.RateLimit, a.actsFor, a.Scopes, a.OIDCClient}
}

// RemoveAgent removes an agent and its keys. What it did stays in the ledger.
func (r *Roster) RemoveAgent(ctx context.Context, by Identity, workspace, name string) error {
	return r.onAgent(ctx, workspace, name, func(tx *ledger.Tx, a Agent) error {
		Remove(tx, by.Actor(), a.Workspace, a.ID, 0)
		return nil
	})
}

// Remove removes an agent in the caller's transaction, which must be one of Roster.Write so
// that cached keys are forgotten. If hold is not 0, its address is given to nobody else for
// that time: mail for the old agent must not reach a new one.
func Remove(tx *ledger.Tx, actor, workspace, agentID string, hold time.Duration) {
	body := agentRemoved{}
	if hold > 0 {
		body.HeldUntil = tx.Now().Add(hold).UnixMicro()
	}
	tx.Append(ledger.Event{Workspace: workspace, Kind: "agent.removed", Actor: actor, Subject: agentID, Body: body})
}

// Suspend suspends an agent until a moment, or until somebody resumes it.
func (r *Roster) Suspend(ctx context.Context, by Identity, workspace, name, reason string, until time.Time) (Agent,
	error,
) {
	var a Agent
	err := r.onAgent(ctx, workspace, name, func(tx *ledger.Tx, found Agent) (err error) {
		body := agentSuspended{Reason: reason}
		if !until.IsZero() {
			body.Until = until.UnixMicro()
		}
		suspend(tx, by.Actor(), found, body)
		a, err = r.agent(tx.Prover(), workspace, found.ID)
		return err
	})
	return a, err
}

// suspend appends the entry, also for an agent that is suspended already: the reason or the end
// may differ.
func suspend(tx *ledger.Tx, actor string, a Agent, body agentSuspended) {
	tx.Append(ledger.Event{Workspace: a.Workspace, Kind: "agent.suspended", Actor: actor, Subject: a.ID, Body: body})
}

// onAgent finds the agent inside the transaction, so that what was checked about it still
// holds when it is written.
func (r *Roster) onAgent(ctx context.Context, workspace, name string, fn func(*ledger.Tx, Agent) error) error {
	return r.Write(ctx, func(tx *ledger.Tx) error {
		a, err := r.agent(tx.Prover(), workspace, name)
		if err != nil {
			return err
		}
		return fn(tx, a)
	})
}
