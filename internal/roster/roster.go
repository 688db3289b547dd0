package roster

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/oidc"
	"signalbox/internal/recall"
	"signalbox/internal/roster/bucket"
	"signalbox/internal/roster/presence"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// DefaultWorkspace is the workspace that the first start makes.
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

// Allows reports whether the role includes another. A role that does not exist is never
// included.
func (r Role) Allows(needed Role) bool {
	rank := slices.Index(Roles, string(needed))
	return rank >= 0 && slices.Index(Roles, string(r)) >= rank
}

// TrustLevels lists how far an agent is trusted, the least first.
var TrustLevels = []string{"untrusted", "standard", "trusted"}

// Agent is a program that speaks at least one of the protocols. An operator adds it, or it
// registers itself where that is allowed; it ends when it is removed, and its entries stay.
//
// What always holds: its name is unique in its workspace, its address is unique and never
// changes, and it is one identity whichever protocol and key it uses. A suspended agent
// authenticates and is blocked by the policy.
type Agent struct {
	ID        string            `json:"id"`
	Name      string            `json:"name"`
	Workspace string            `json:"workspace"`
	Address   string            `json:"address"`
	Owner     string            `json:"owner,omitempty"`
	Trust     string            `json:"trust"`
	Labels    map[string]string `json:"labels"`
	RateLimit *int64            `json:"rate_limit"` // a minute, 0 for none; nil is the server's own
	Suspended bool              `json:"suspended"`
	// SuspendedUntil is when the agent goes on by itself, nil for never.
	SuspendedUntil *time.Time `json:"suspended_until,omitempty"`
	// ActsFor and Scopes are shown of one agent, not in lists.
	ActsFor    []string    `json:"acts_for,omitzero" doc:"the users for whom it may act beside its owner; [\"anybody\"] is all of the workspace, \"oidc\" who has a token"`
	Scopes     []string    `json:"scopes,omitzero" doc:"what it may do at the most, for whomever; [\"*\"] is everything"`
	OIDCClient string      `json:"oidc_client,omitzero" doc:"its client id at an issuer of tokens; like scopes it is not in lists"`
	Online     bool        `json:"online"`
	LastSeenAt *time.Time  `json:"last_seen_at"`
	AddedAt    time.Time   `json:"added_at"`
	PublicKeys []PublicKey `json:"public_keys"` // the oldest first

	owner   string   // the id of the owner, of an agent that was read alone
	actsFor []string // as it is stored: ids
}

// Person is an operator: somebody who decides gates and looks after agents. An admin adds
// them. With a workspace they see that workspace and nothing else.
type Person struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      Role      `json:"role"`
	Workspace string    `json:"workspace,omitempty"` // the one they are confined to
	AddedAt   time.Time `json:"added_at"`
	// Contacts are by what channels know them, by channel.
	Contacts map[string]string `json:"contacts"`
}

// Key is a key without its secret, which was shown once. It works until it is revoked, until
// 24 hours after it was rotated, or until its holder is removed.
type Key struct {
	ID        string     `json:"id"`
	Kind      KeyKind    `json:"kind"`
	Hint      string     `json:"hint"`
	Agent     string     `json:"agent,omitempty"`
	Workspace string     `json:"workspace,omitempty"`
	Operator  string     `json:"operator,omitempty"`
	Owner     string     `json:"owner,omitempty"`
	RateLimit int64      `json:"rate_limit,omitzero"` // a minute, within the agent's own; 0 is none
	IssuedAt  time.Time  `json:"issued_at"`
	ExpiresAt *time.Time `json:"expires_at"`
	RevokedAt *time.Time `json:"revoked_at"`
}

// HolderKind says what the holder of a key is.
type HolderKind string

// The kinds of holders.
const (
	HolderAgent    HolderKind = "agent"
	HolderOperator HolderKind = "operator"
	HolderOwner    HolderKind = "owner"
)

// Identity is an authenticated caller. Authenticate makes it; it is valid for one request, and
// must not be stored. It is shared with other requests of the same key, so nobody may change
// it or the maps in it. The zero value is the server itself.
type Identity struct {
	KeyID     string
	Kind      HolderKind
	ID        string // of the holder
	Name      string
	Workspace string // the holder's own; for an operator the one they are confined to, "" for all
	Role      Role   // of an operator

	// Of an agent.
	Address   string
	Trust     string
	Labels    map[string]string
	Suspended bool
	RateLimit *int64 // a minute, 0 for none; nil when it has no limit of its own
	KeyLimit  int64  // of the key, 0 for none
	PublicKey ed25519.PublicKey
	Owner     string   // the id of the user whose it is, "" for none
	ActsFor   []string // ids of further users for whom it may act, or anybody
	Scopes    []string // what it may do at the most, nil for everything
	// OIDCClient is its client id at an issuer of tokens, "" for none.
	OIDCClient string
	// Proved is what ProveUser has found by the token of this call, nil without one.
	Proved *Behalf
}

// Actor is how the identity is named in the ledger.
func (i Identity) Actor() string {
	if i.ID == "" {
		return "system"
	}
	return string(i.Kind) + ":" + i.Name
}

// Options say what a roster is made of.
type Options struct {
	DB       *store.DB
	Ledger   *ledger.Ledger // has Projection
	Now      func() time.Time
	Log      *slog.Logger
	Provider string         // the domain that the addresses of agents end with
	PerAgent func() *int64  // the limit of every agent now, a minute, 0 for none; nil leaves it to the protocols
	Tokens   *oidc.Verifier // of users; nil refuses all
}

// Roster keeps and looks up identities. It is safe for concurrent use.
type Roster struct {
	db       *store.DB
	ledger   *ledger.Ledger
	now      func() time.Time
	log      *slog.Logger
	provider string
	perAgent func() *int64
	tokens   *oidc.Verifier
	cache    recall.Cache[string, holding]
	presence *presence.Sightings
	buckets  bucket.Buckets
	hourly   bucket.Buckets
}

// New makes a roster. While Run is running, keys are cached and presence is shared with other
// nodes.
func New(o Options) *Roster {
	if o.PerAgent == nil {
		o.PerAgent = func() *int64 { return nil }
	}
	return &Roster{
		db: o.DB, ledger: o.Ledger, now: o.Now, log: o.Log, provider: o.Provider, perAgent: o.PerAgent,
		tokens:   o.Tokens,
		hourly:   bucket.Buckets{Hours: true},
		presence: presence.New(o.DB, o.Now, o.Log),
	}
}

var caller wire.Carried[Identity]

// With puts the identity of the caller into the context.
func With(ctx context.Context, who Identity) context.Context {
	wire.NoteCaller(ctx, who.ID, who.Actor(), who.Workspace)
	return caller.With(ctx, who)
}

// From is the identity of the caller that With has put there, the zero Identity if nobody has.
func From(ctx context.Context) Identity { return caller.Of(ctx) }

// Write is ledger.Write for entries that change identities: it empties the cache before it
// returns, so that on this node a revoked key is refused from the moment its revocation is
// answered. On other nodes following the ledger empties it.
func (r *Roster) Write(ctx context.Context, fn func(*ledger.Tx) error) error {
	err := r.ledger.Write(ctx, fn)
	r.cache.Forget()
	return err
}

// nameForm is the form of a DNS label, since names are part of addresses.
var nameForm = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)

// checkName checks the name of an agent, an operator, an owner or a workspace.
func checkName(name string) error {
	if len(name) > 63 || !nameForm.MatchString(name) {
		return fault.New(fault.InvalidPayload,
			"The name should be 1 to 63 lower-case letters and digits, with single "+
				"hyphens between them, such as %q. It is %.80q.", "billing-agent", name).About("name")
	}
	return nil
}

// oneOf refuses a value that is not among the known ones, and lists them.
func oneOf(field, value string, known []string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fault.New(fault.InvalidPayload, "The field %q should be one of %s, and is %.80q.", field,
		strings.Join(known, ", "), value).About(field)
}
