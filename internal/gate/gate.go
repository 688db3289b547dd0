package gate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/id"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Origin says which protocol opened a gate and what it holds back. The package never looks
// inside: Protocol selects the function of OnResolved, and is shown and filtered by.
type Origin struct {
	Protocol  string `json:"protocol"`
	Reference string `json:"reference"` // the protocol's own id of what is held
	// Run is the run of ours that asks, as its agent says or a handoff shows; "" for none. See AskedBy.
	Run string `json:"run,omitzero"`
	// Outlasts says that what it holds goes on without the run, such as a mail or a task: nothing in the run waits for
	// it, and it is not withdrawn with the run.
	Outlasts bool `json:"outlasts,omitzero"`
	// Callback is where the protocol wants to tell of the resolution.
	Callback string `json:"callback,omitzero"`
}

// Shown is what a protocol shows to an operator, and what an approval is good for. Without a
// digest of the protocol's own, the action digest is that of these bytes as they stand in
// the entry, so the order and the names of the members are part of what is approved. What the
// operator sees is more: also whose gate it is, its risk and its rules; see Gate.ShownDigest.
type Shown struct {
	Title          string     `json:"title"`
	Summary        string     `json:"summary,omitzero"`
	ProposedAction string     `json:"proposed_action,omitzero"`
	Facts          []Fact     `json:"facts,omitzero"`
	Artifacts      []wire.Raw `json:"artifacts,omitzero"`
	Rule           string     `json:"rule,omitzero"`
	Reason         string     `json:"reason,omitzero"` // why the rule wants a decision
	// Unshown are the artifacts of which Prepare has left only the beginning.
	Unshown []Unshown `json:"unshown,omitzero"`
}

// maxTitle is the longest title.
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

// Opening is what a gate is opened with. It is the body of gate.opened, and is never erased:
// a gate is read from it for as long as it is listed.
type Opening struct {
	Project   string `json:"project"`
	Agent     string `json:"agent"` // the agent's id
	AgentName string `json:"agent_name"`
	Requester string `json:"requester"` // the actor who asked, and may not approve
	behalf.Of        // on whose behalf
	Origin    Origin `json:"origin"`
	Risk      string `json:"risk"`
	Shown     Shown  `json:"shown"`
	Rules     Rules  `json:"rules"`
	// Context is what led to it, for who decides. It is not part of what is approved, and so not of
	// Shown: two gates about the same have one action digest, whatever led to them. Prepare bounds it.
	Context []Fact `json:"context,omitzero"`
	// Uses is how often who asks can use the approval, if they hold a connection or come back for it, and
	// so take it at once; 0 if nobody takes it by asking.
	Uses int `json:"uses,omitzero"`
	// Digest is the SHA-256 of what is held, in hex. Without one it is that of what is
	// shown, as it stands in the entry.
	Digest string `json:"action_digest,omitzero"`

	attached map[int]attached // artifacts that Prepare has to make, by their index
}

// expiry is when a gate that the entry opens expires, nil for never.
func (o *Opening) expiry(e *ledger.Entry) *time.Time {
	if o.Rules.Expires <= 0 {
		return nil
	}
	due := e.At.Add(time.Duration(o.Rules.Expires) * time.Microsecond)
	return &due
}

// Gate is a decision that a person owes, with everything an operator needs to take it. A
// protocol opens one when a rule says gate. It ends, once and for good, by a vote, by its
// expiry, or by the protocol itself when what it holds has become moot (Settle).
//
// What always holds: Status goes from pending to approved or rejected and never changes
// again. ResolvedAt, ResolvedBy and Cause are set if and only if it is resolved. Votes are of
// different operators. ActionDigest names what was approved, and does not change.
//
// A Gate is a copy of what the database held when it was read; only a transaction knows
// whether it still waits.
type Gate struct {
	ID             string     `json:"id"`
	Workspace      string     `json:"workspace"`
	Project        string     `json:"project"`
	Agent          string     `json:"agent"` // its name
	behalf.Of                 // on whose behalf; people are told with the facts
	Origin         Origin     `json:"origin"`
	Title          string     `json:"title"`
	Summary        string     `json:"summary"`
	ProposedAction string     `json:"proposed_action"`
	Facts          []Fact     `json:"facts,omitempty"`
	Artifacts      []wire.Raw `json:"artifacts"`
	Context        []Fact     `json:"context,omitempty"` // what led to it; not part of what is approved
	Unshown        []Unshown  `json:"unshown,omitempty"` // of the artifacts
	Rule           string     `json:"rule"`
	Reason         string     `json:"reason"`
	Risk           string     `json:"risk"`
	ActionDigest   string     `json:"action_digest"`
	Digest         string     `json:"digest,omitempty"` // of what is shown, for a vote to name; see ShownDigest
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
	Prompt         string     `json:"prompt,omitempty"`   // of the run that asks; only where one gate is shown
	Receipts       []Receipt  `json:"receipts,omitempty"` // what became of the action; only where one gate is shown
	Unused         *Unused    `json:"unused,omitempty"`   // the approval, if nobody has taken it; only there, too
	// Presence is Passkey if a vote has to be signed: as the rule says, and where one gate is shown, also
	// because of its risk, for who looks.
	Presence string `json:"presence,omitempty"`

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

// fill copies what the gate was opened with. A gate without a digest of its own gets that of
// what is shown, taken from the stored bytes: encoding it again could give other bytes.
func (g *Gate) fill(e *ledger.Entry) error {
	if err := e.Decode(&g.opening); err != nil {
		return err
	}
	o := &g.opening
	g.opened, g.ID, g.Workspace, g.Trace = e.Seq, e.Subject, e.Workspace, e.Trace
	g.OpenedAt, g.ExpiresAt = e.At, o.expiry(e)
	g.Project, g.Of = o.Project, o.Of
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
	g.Title, g.Summary, g.ProposedAction = o.Shown.Title, o.Shown.Summary, o.Shown.ProposedAction
	g.Artifacts, g.Facts, g.Rule, g.Reason = o.Shown.Artifacts, o.Shown.Facts, o.Shown.Rule, o.Shown.Reason
	g.Context = o.Context
	g.Unshown = o.Shown.Unshown
	g.OnExpiry, g.Quorum, g.Approvers = o.Rules.OnExpiry, o.Rules.Quorum, o.Rules.Approvers
	g.Presence = o.Rules.Presence
	return nil
}

// Gates opens gates, takes votes and lets callers wait. It keeps no state of its own but the
// calls that wait, so any node can decide any gate.
type Gates struct {
	db     *store.DB
	ledger *ledger.Ledger
	roster *roster.Roster
	index  *behalf.Index
	log    *slog.Logger

	onResolved   map[string]func(*ledger.Tx, Gate) error
	readApproval map[string]ReadApproval
	base         string // where people reach the server; see LinkTo
	prompt       func(ctx context.Context, workspace, run string) string
	names        func(ctx context.Context, who roster.Identity, run string) bool

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
		db: db, ledger: l, roster: r, index: behalf.New(db, l, r), log: log, onResolved: map[string]func(*ledger.Tx, Gate) error{},
		waiters: l.Waiters(resolved),
	}
}

// OnResolved registers a function that is called in the transaction that resolves a gate of
// the protocol, so that what follows from a decision is committed if and only if the decision
// is. An error of fn undoes the decision. Call it before Run; the map is not locked.
func (g *Gates) OnResolved(protocol string, fn func(tx *ledger.Tx, resolved Gate) error) {
	g.onResolved[protocol] = fn
}

// PromptOf says how the prompt of a run is found, by which people know what a gate belongs to. Call it before Run.
func (g *Gates) PromptOf(fn func(ctx context.Context, workspace, run string) string) { g.prompt = fn }

// NamedBy says how it is found out whether an agent may say that its gates are a run's. Call it before Run.
func (g *Gates) NamedBy(fn func(ctx context.Context, who roster.Identity, run string) bool) {
	g.names = fn
}

// AskedBy is Origin.Run for what an agent calls its run: an id of a run of ours whose agent it is, or "". Agents of other
// programs number their runs as they like, and those have no page here.
func (g *Gates) AskedBy(ctx context.Context, who roster.Identity, run string) string {
	if run = AskedBy(run); run != "" && g.names != nil && !g.names(ctx, who, run) {
		return ""
	}
	return run
}

// LinkTo says at which address people reach the server, for errors that send them to a page of it. Call
// it before Run.
func (g *Gates) LinkTo(base string) { g.base = base }

// Prepared is a gate that is ready to be opened: checked and encoded.
type Prepared struct {
	requester string
	body      ledger.Body
	kept      [][]byte // artifacts that are not shown whole
}

// Prepare does all of the work that can be done before the transaction, in which only one
// caller can work at a time.
func Prepare(o Opening) (Prepared, error) {
	rank, err := riskRank(o.Risk)
	if err != nil {
		return Prepared{}, err
	}
	o.Risk = Risks[rank]
	o.Rules = o.Rules.Normal()
	o.Context = bounded(o.Context)
	kept, err := o.keepLong()
	if err != nil {
		return Prepared{}, err
	}
	body, err := ledger.Encode(&o)
	return Prepared{o.Requester, body, kept}, err
}

// Open opens the gate in the caller's transaction. The id is the caller's to make
// (NewID).
func (p Prepared) Open(tx *ledger.Tx, gateID, workspace, trace string) {
	// Who follows a trace does not want to read all that is kept, so that has none.
	for _, content := range p.kept {
		tx.Append(ledger.Event{
			Workspace: workspace, Kind: kindKept, Actor: p.requester, Subject: gateID, Body: content,
		})
	}
	tx.Append(ledger.Event{
		Workspace: workspace, Kind: "gate.opened", Actor: p.requester, Subject: gateID, Trace: trace,
		Body: p.body,
	})
}

// NewID makes the id of a gate.
func NewID() string { return id.New("gate") }
