package roster

import (
	"context"
	"database/sql"
	"errors"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/signalbox/signalbox/internal/fault"
	"github.com/signalbox/signalbox/internal/ledger"
	"github.com/signalbox/signalbox/internal/store"
	"github.com/signalbox/signalbox/internal/wire"
)

// DefaultWorkspace is there from the first start on.
const DefaultWorkspace = "default"

// Role says what an operator may do; each may do what the one before it may.
type Role string

// The roles.
const (
	Viewer   Role = "viewer"   // sees everything
	Operator Role = "operator" // decides, and looks after agents and their keys
	Admin    Role = "admin"    // looks after operators and the server
)

// Roles lists the roles, the least first.
var Roles = []string{string(Viewer), string(Operator), string(Admin)}

// Allows reports whether the role includes another.
func (r Role) Allows(needed Role) bool {
	return slices.Index(Roles, string(r)) >= slices.Index(Roles, string(needed))
}

// TrustLevels lists how far an agent is trusted, the least first.
var TrustLevels = []string{"untrusted", "standard", "trusted"}

// Agent is an agent as operators see it.
type Agent struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Workspace string            `json:"workspace"`
	Trust     string            `json:"trust"`
	Labels    map[string]string `json:"labels"`
	Suspended bool              `json:"suspended"`
	AddedAt   time.Time         `json:"added_at"`
}

// Person is an operator.
type Person struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Workspace string    `json:"workspace,omitempty"` // the one they are confined to
	AddedAt   time.Time `json:"added_at"`
}

// Key is a key without its secret.
type Key struct {
	ID        string     `json:"id"`
	Kind      KeyKind    `json:"kind"`
	Hint      string     `json:"hint"`
	Agent     string     `json:"agent,omitempty"`
	Workspace string     `json:"workspace,omitempty"`
	Operator  string     `json:"operator,omitempty"`
	IssuedAt  time.Time  `json:"issued_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

// Identity is who a caller has been found to be.
type Identity struct {
	KeyID     string
	ID        string // of the agent or the operator
	Name      string
	Role      Role   // of an operator; "" for an agent
	Workspace string // an agent's own; the one an operator is confined to, "" for all
	Suspended bool
	Address   string
	Trust     string
	Labels    map[string]string
}

// Actor is how the identity is named in the ledger.
func (i Identity) Actor() string {
	if i.ID == "" {
		return "system"
	}
	if i.Role != "" {
		return "operator:" + i.Name
	}
	return "agent:" + i.Name
}

// Roster answers who there is.
type Roster struct {
	db     *store.DB
	ledger *ledger.Ledger
	now    func() time.Time
	cache  cache
}

// New makes a roster over a ledger that has Projection. While Run is running, keys
// are looked up once.
func New(db *store.DB, l *ledger.Ledger, now func() time.Time) *Roster {
	return &Roster{db: db, ledger: l, now: now}
}

type contextKey struct{}

// With puts the identity of the caller into the context.
func With(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, who)
}

// From is the identity of the caller, as With has put it there.
func From(ctx context.Context) Identity {
	who, _ := ctx.Value(contextKey{}).(Identity)
	return who
}

// Authenticate finds out who holds the key.
func (r *Roster) Authenticate(ctx context.Context, secret string) (Identity, error) {
	hash := hashSecret(secret)
	h, found, round := r.cache.find(hash)
	if !found {
		var err error
		if h, err = r.holder(ctx, hash); err != nil {
			return Identity{}, err
		}
		r.cache.put(hash, h, round)
	}
	now := r.now().UnixMicro()
	if h.revoked != 0 && now >= h.revoked {
		again := "signalbox keys issue " + h.who.Name
		if h.who.Role != "" {
			again = "signalbox operators token " + h.who.Name
		}
		return Identity{}, fault.New(fault.Unauthenticated, "This key was revoked. An operator makes a new one with `%s`.", again)
	}
	if h.expires != 0 && now >= h.expires {
		return Identity{}, fault.New(fault.Unauthenticated, "This key was rotated, and its grace period is over. Use the key that replaced it.")
	}
	return h.who, nil
}

// holder reads a key and whom it stands for.
func (r *Roster) holder(ctx context.Context, hash []byte) (h holding, err error) {
	var agent, operator, role, workspace, confined sql.NullString
	var suspended sql.NullBool
	err = r.db.Read.QueryRowContext(ctx, `SELECT k.id, k.holder, k.expires_at, k.revoked_at, a.name, a.workspace, a.suspended, o.name, o.role, o.workspace
FROM access_key k LEFT JOIN agent a ON a.id = k.holder LEFT JOIN operator o ON o.id = k.holder WHERE k.hash = $1`, hash).
		Scan(&h.who.KeyID, &h.who.ID, &h.expires, &h.revoked, &agent, &workspace, &suspended, &operator, &role, &confined)
	if errors.Is(err, sql.ErrNoRows) {
		return h, fault.New(fault.Unauthenticated, "This key is not known here. Check that it was copied whole, and that it belongs to this server.")
	}
	h.who.Name, h.who.Workspace, h.who.Suspended = agent.String, workspace.String, suspended.Bool
	if operator.Valid {
		h.who.Name, h.who.Role, h.who.Workspace = operator.String, Role(role.String), confined.String
	}
	return h, err
}

// write appends to the ledger, and forgets at once what it may have changed: on this
// node a key that was revoked is refused from the moment on that the caller hears so.
func (r *Roster) write(ctx context.Context, fn func(*ledger.Tx) error) error {
	err := r.ledger.Write(ctx, fn)
	r.cache.forget()
	return err
}

var nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

func checkName(what, name string) error {
	if len(name) > 63 || !nameForm.MatchString(name) {
		return fault.New(fault.InvalidPayload, "The %s should be 1 to 63 lower-case letters and digits, with single hyphens between them, such as %q. It is %.80q.", what, "billing-agent", name).About("name")
	}
	return nil
}

func oneOf(field, value string, known []string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fault.New(fault.InvalidPayload, "The field %q should be one of %s, and is %.80q.", field, strings.Join(known, ", "), value).About(field)
}

const agentColumns = "id, name, workspace, trust, labels, suspended, added_at"

func scanAgent(scan func(...any) error) (Agent, error) {
	var a Agent
	var labels []byte
	var at int64
	if err := scan(&a.ID, &a.Name, &a.Workspace, &a.Trust, &labels, &a.Suspended, &at); err != nil {
		return a, err
	}
	a.AddedAt = time.UnixMicro(at).UTC()
	return a, wire.Unmarshal(labels, &a.Labels)
}

// Agents lists agents by workspace and name, after the given ones.
func (r *Roster) Agents(ctx context.Context, workspace string, after [2]string, limit int) ([]Agent, error) {
	return list(ctx, r.db, scanAgent, "SELECT "+agentColumns+" FROM agent WHERE (workspace, name) > ($1, $2) AND ($3 = '' OR workspace = $3) ORDER BY workspace, name LIMIT $4",
		after[0], after[1], workspace, limit)
}

// findAgent finds by name or by id, and only in the workspace.
const findAgent = "SELECT " + agentColumns + " FROM agent WHERE workspace = $1 AND (name = $2 OR id = $2)"

// Agent finds one agent of a workspace by name, or by id.
func (r *Roster) Agent(ctx context.Context, workspace, name string) (Agent, error) {
	a, err := scanAgent(r.db.Read.QueryRowContext(ctx, findAgent, workspace, name).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return a, noAgent(workspace, name)
	}
	return a, err
}

func noAgent(workspace, name string) error {
	return fault.New(fault.NotFound, "There is no agent %q in workspace %q. `signalbox agents ls` lists those there are.", name, workspace)
}

// Operators lists the operators by name: all, or those confined to a workspace.
func (r *Roster) Operators(ctx context.Context, workspace string) ([]Person, error) {
	return list(ctx, r.db, func(scan func(...any) error) (Person, error) {
		var p Person
		var at int64
		err := scan(&p.ID, &p.Name, &p.Role, &p.Workspace, &at)
		p.AddedAt = time.UnixMicro(at).UTC()
		return p, err
	}, "SELECT id, name, role, workspace, added_at FROM operator WHERE $1 = '' OR workspace = $1 ORDER BY name", workspace)
}

// Keys lists the keys of a workspace, or all for ""; of one holder by its id, or of
// all for "".
func (r *Roster) Keys(ctx context.Context, workspace, holder, after string, limit int) ([]Key, error) {
	return list(ctx, r.db, scanKey, "SELECT "+keyColumns+" WHERE k.id > $1 AND ($2 = '' OR k.holder = $2) AND ($3 = '' OR a.workspace = $3 OR o.workspace = $3) ORDER BY k.id LIMIT $4", after, holder, workspace, limit)
}

const keyColumns = `k.id, k.kind, k.hint, k.issued_at, k.expires_at, k.revoked_at, a.name, a.workspace, o.name, o.workspace
FROM access_key k LEFT JOIN agent a ON a.id = k.holder LEFT JOIN operator o ON o.id = k.holder`

func scanKey(scan func(...any) error) (Key, error) {
	var k Key
	var issued, expires, revoked int64
	var agent, workspace, operator, confined sql.NullString
	if err := scan(&k.ID, &k.Kind, &k.Hint, &issued, &expires, &revoked, &agent, &workspace, &operator, &confined); err != nil {
		return k, err
	}
	k.Agent, k.Workspace, k.Operator = agent.String, workspace.String+confined.String, operator.String
	k.IssuedAt, k.ExpiresAt, k.RevokedAt = time.UnixMicro(issued).UTC(), moment(expires), moment(revoked)
	return k, nil
}

// moment is nil for 0, which stands for never.
func moment(micros int64) *time.Time {
	if micros == 0 {
		return nil
	}
	t := time.UnixMicro(micros).UTC()
	return &t
}

func list[T any](ctx context.Context, db *store.DB, scan func(func(...any) error) (T, error), query string, args ...any) ([]T, error) {
	rows, err := db.Read.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := []T{}
	for rows.Next() {
		one, err := scan(rows.Scan)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, rows.Err()
}

// Knows reports whether there is or was such a key, valid or not.
func (r *Roster) Knows(ctx context.Context, secret string) (bool, error) {
	var n int
	err := r.db.Read.QueryRowContext(ctx, "SELECT count(*) FROM access_key WHERE hash = $1", hashSecret(secret)).Scan(&n)
	return n > 0, err
}
