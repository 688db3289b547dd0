package gate

import (
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Origin says where a gate comes from.
type Origin struct {
	Protocol  string `json:"protocol"`
	Reference string `json:"reference"` // the protocol's own id of what is held
	// Callback is where the protocol wants to tell of the resolution.
	Callback string `json:"callback,omitzero"`
}

// Shown is exactly what an operator is shown, and what an approval is good for.
type Shown struct {
	Title          string     `json:"title"`
	Summary        string     `json:"summary,omitzero"`
	ProposedAction string     `json:"proposed_action,omitzero"`
	Facts          []Fact     `json:"facts,omitzero"`
	Artifacts      []wire.Raw `json:"artifacts,omitzero"`
	Rule           string     `json:"rule,omitzero"`
	Reason         string     `json:"reason,omitzero"` // why the rule wants a decision
}

const maxTitle = 120 // characters

// Title is the first line of what an agent wrote, short enough to be read in a list.
func Title(text string) string {
	line, _, cut := strings.Cut(strings.TrimSpace(text), "\n")
	runes := []rune(line)
	if len(runes) > maxTitle {
		runes, cut = runes[:maxTitle], true
	}
	if cut {
		return strings.TrimSpace(string(runes)) + "…"
	}
	return line
}

// Fact is something else that an operator should know, such as what it cost.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Opening is what a gate is opened with. It is the body of gate.opened.
type Opening struct {
	Project   string `json:"project"`
	Agent     string `json:"agent"` // the agent's id
	AgentName string `json:"agent_name"`
	Requester string `json:"requester"` // the actor who asked, and may not approve
	Origin    Origin `json:"origin"`
	Risk      string `json:"risk"`
	Shown     Shown  `json:"shown"`
	Rules     Rules  `json:"rules"`
	// Digest is the SHA-256 of what is held, in hex. Without one it is that of what is
	// shown, as it stands in the entry.
	Digest string `json:"action_digest,omitzero"`
}

// expiry is when a gate that the entry opens expires, nil for never.
func (o *Opening) expiry(e *ledger.Entry) *time.Time {
	if o.Rules.Expires <= 0 {
		return nil
	}
	due := e.At.Add(time.Duration(o.Rules.Expires) * time.Microsecond)
	return &due
}

// Gate is a gate with everything an operator needs to decide.
type Gate struct {
	ID             string     `json:"id"`
	Workspace      string     `json:"workspace"`
	Project        string     `json:"project"`
	Agent          string     `json:"agent"` // its name
	Origin         Origin     `json:"origin"`
	Title          string     `json:"title"`
	Summary        string     `json:"summary"`
	ProposedAction string     `json:"proposed_action"`
	Facts          []Fact     `json:"facts,omitempty"`
	Artifacts      []wire.Raw `json:"artifacts"`
	Rule           string     `json:"rule"`
	Reason         string     `json:"reason"`
	Risk           string     `json:"risk"`
	ActionDigest   string     `json:"action_digest"`
	Status         Status     `json:"status"`
	OpenedAt       time.Time  `json:"opened_at"`
	ExpiresAt      *time.Time `json:"expires_at"`
	OnExpiry       Status     `json:"on_expiry"`
	Quorum         int        `json:"quorum"`
	Approvers      []string   `json:"approvers"`
	Votes          []Vote     `json:"votes"`
	ResolvedAt     *time.Time `json:"resolved_at"`
	ResolvedBy     string     `json:"resolved_by,omitempty"`
	Cause          Cause      `json:"cause,omitempty"`
	Note           string     `json:"note,omitempty"`
	Modified       wire.Raw   `json:"modified,omitzero"`
	Trace          string     `json:"trace,omitempty"`
	Receipts       []Receipt  `json:"receipts,omitempty"` // what became of the action; only where one gate is shown

	opening Opening
	opened  int64 // the entry that opened it
}

// Decider says who resolved a gate, as agents are told: operator or rule. Which operator it
// was is in the ledger.
func (c Cause) Decider() string {
	if c == ByVote {
		return "operator"
	}
	return "rule"
}

// AgentID is the id of the agent whose gate it is.
func (g *Gate) AgentID() string { return g.opening.Agent }

// fill copies what the gate was opened with.
func (g *Gate) fill(e *ledger.Entry) error {
	if err := e.Decode(&g.opening); err != nil {
		return err
	}
	o := &g.opening
	g.opened, g.ID, g.Workspace, g.OpenedAt, g.Trace, g.ExpiresAt = e.Seq, e.Subject, e.Workspace, e.At, e.Trace, o.expiry(e)
	g.Project = o.Project
	g.Agent, g.Origin, g.Risk, g.ActionDigest = o.AgentName, o.Origin, o.Risk, o.Digest
	if g.ActionDigest == "" {
		var stored struct {
			Shown wire.Raw `json:"shown"`
		}
		if err := wire.UnmarshalPart(e.Body, &stored); err != nil {
			return err
		}
		sum := sha256.Sum256(stored.Shown)
		g.ActionDigest = hex.EncodeToString(sum[:])
	}
	g.Title, g.Summary, g.ProposedAction, g.Artifacts = o.Shown.Title, o.Shown.Summary, o.Shown.ProposedAction, o.Shown.Artifacts
	g.Facts, g.Rule, g.Reason = o.Shown.Facts, o.Shown.Rule, o.Shown.Reason
	g.OnExpiry, g.Quorum, g.Approvers = o.Rules.OnExpiry, o.Rules.Quorum, o.Rules.Approvers
	return nil
}

// Gates opens, decides and waits.
type Gates struct {
	db     *store.DB
	ledger *ledger.Ledger
	roster *roster.Roster
	log    *slog.Logger

	onResolved map[string]func(*ledger.Tx, Gate) error

	waiters *ledger.Waiters // for the resolution of a gate, by its id
}

// New makes the gates of a ledger that has Projection.
func New(db *store.DB, l *ledger.Ledger, r *roster.Roster, log *slog.Logger) *Gates {
	resolved := func(e *ledger.Entry) string {
		if e.Kind == "gate.resolved" {
			return e.Subject
		}
		return ""
	}
	return &Gates{
		db: db, ledger: l, roster: r, log: log, onResolved: map[string]func(*ledger.Tx, Gate) error{},
		waiters: l.Waiters(resolved),
	}
}

// OnResolved has fn called in the transaction that resolves a gate of the protocol, so
// that what follows from a decision is there if and only if the decision is. It is said
// before anything runs.
func (g *Gates) OnResolved(protocol string, fn func(tx *ledger.Tx, resolved Gate) error) {
	g.onResolved[protocol] = fn
}

// Prepared is a gate that is ready to be opened.
type Prepared struct {
	requester string
	body      ledger.Body
}

// Prepare does all of the work that can be done before the transaction.
func Prepare(o Opening) (Prepared, error) {
	rank, err := riskRank(o.Risk)
	if err != nil {
		return Prepared{}, err
	}
	o.Risk = Risks[rank]
	o.Rules = o.Rules.Normal()
	body, err := ledger.Encode(&o)
	return Prepared{o.Requester, body}, err
}

// Open opens the gate in the caller's transaction. The id is the caller's to make
// (NewID).
func (p Prepared) Open(tx *ledger.Tx, gateID, workspace, trace string) {
	tx.Append(ledger.Event{
		Workspace: workspace, Kind: "gate.opened", Actor: p.requester, Subject: gateID, Trace: trace,
		Body: p.body,
	})
}

// NewID makes the id of a gate.
func NewID() string { return id.New("gate") }
