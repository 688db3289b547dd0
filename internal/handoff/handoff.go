package handoff

import (
	"context"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/recall"
	"signalbox/internal/roster"
	"signalbox/internal/scope"
	"signalbox/internal/store"
)

// Handoff is work that was handed on. Open makes it; it ends when somebody ends it, when its time is over, and with
// the one above it.
//
// What always holds: it never allows more than its parent, and nothing of it changes but that it is taken and ended.
type Handoff struct {
	ID        string `json:"id"`
	Workspace string `json:"workspace"`
	Parent    string `json:"parent,omitempty" doc:"the handoff under which it was handed on"`
	From      string `json:"from" doc:"who has handed it on: an agent, or a person"`
	To        string `json:"to" doc:"the agent that may use it"`
	User      string `json:"user,omitempty" doc:"on whose behalf"`
	// Scopes and Tools are nil for everything.
	Scopes   []string      `json:"scopes,omitzero"`
	Tools    []string      `json:"tools,omitzero"`
	Budget   policy.Budget `json:"budget,omitzero"`
	Depth    int64         `json:"depth" doc:"how many agents have handed the work on"`
	Work     string        `json:"work,omitempty" doc:"what it is for: the id of a task, a run, a message or a call"`
	Bound    bool          `json:"bound,omitempty" doc:"only the first session that uses it can use it"`
	Session  string        `json:"session,omitempty" doc:"the session that has used it first"`
	Subagent string        `json:"subagent,omitempty" doc:"the type of subagent that it is for"`
	Protocol string        `json:"protocol,omitempty" doc:"task, run or mail; absent if the agent handed it on by itself"`
	OpenedAt time.Time     `json:"opened_at"`
	EndsAt   time.Time     `json:"ends_at"`
	EndedAt  *time.Time    `json:"ended_at"`
	EndedBy  string        `json:"ended_by,omitempty"`
	Reason   string        `json:"reason,omitempty" doc:"why it was ended"`
	// Over and Spent are of the moment at which it is shown.
	Over  string        `json:"over,omitempty" doc:"why nothing can be done under it any more; absent while it is open"`
	Spent policy.Budget `json:"spent,omitzero" doc:"what was used of its budget, by it and all below it"`

	from, to, user string // ids
	opener         string // the session in which it was opened
	trace          string
}

// follow takes over what an entry says.
func (h *Handoff) follow(e *ledger.Entry) error {
	switch e.Kind {
	case Opened:
		b, err := ledger.Read[opened](e)
		if err != nil {
			return err
		}
		*h = b.handoff()
		h.ID, h.Workspace, h.OpenedAt, h.trace = e.Subject, e.Workspace, e.At, e.Trace
	case Taken:
		b, err := ledger.Read[taken](e)
		if err != nil {
			return err
		}
		if h.Session == "" {
			h.Session = b.Session
		}
	case Ended:
		b, err := ledger.Read[ended](e)
		if err != nil {
			return err
		}
		if h.EndedAt == nil {
			at := e.At
			h.EndedAt, h.EndedBy, h.Reason = &at, e.Actor, b.Reason
		}
	}
	return nil
}

// InSession reports whether the handoff was opened in a session, or taken by it or by a subagent of it.
func (h *Handoff) InSession(session string) bool {
	return h.opener == session || h.Session == session || strings.HasPrefix(h.Session, session+"/")
}

// handoff is what the body says.
func (b *opened) handoff() Handoff {
	return Handoff{
		Parent: b.Parent, From: b.FromName, To: b.ToName, User: b.UserName, Scopes: b.Scopes, Tools: b.Tools,
		Budget: b.Budget, Depth: b.Depth, Work: b.Work, Bound: b.Bound, Subagent: b.Subagent, Protocol: b.Protocol,
		EndsAt: time.UnixMicro(b.Ends).UTC(), from: b.From, to: b.To, user: b.User, opener: b.Session,
	}
}

// narrows reports whether the handoff allows less than everything.
func (h *Handoff) narrows() bool {
	return h.Scopes != nil && !scope.Has(h.Scopes, scope.All) || h.Tools != nil || h.Budget != policy.Budget{}
}

// over says why a handoff is over at a moment, "" if it is not.
func (h *Handoff) over(now time.Time) string {
	switch {
	case h.EndedAt != nil && h.Reason != "":
		return "it was ended: " + h.Reason
	case h.EndedAt != nil:
		return "it was ended"
	case !now.Before(h.EndsAt):
		return "its time was over at " + h.EndsAt.Format(time.RFC3339)
	}
	return ""
}

// Options say what Handoffs are made of.
type Options struct {
	DB     *store.DB
	Ledger *ledger.Ledger // has Projection
	Roster *roster.Roster
	Now    func() time.Time
	Key    []byte // the server's, for tokens
}

// Handoffs opens, finds and ends handoffs. It is safe for concurrent use.
type Handoffs struct {
	db     *store.DB
	ledger *ledger.Ledger
	roster *roster.Roster
	now    func() time.Time
	key    []byte
	spent  func(handoffID string) policy.Budget // nil for nothing

	chains recall.Cache[string, []hop]    // by the id of the last
	held   recall.Cache[string, []string] // the ids of those that are open, by the agent that has them
}

// New makes the handoffs of a server. While Run is running, what the ledger says is cached.
func New(o Options) *Handoffs {
	return &Handoffs{db: o.DB, ledger: o.Ledger, roster: o.Roster, now: o.Now, key: o.Key}
}

// Count sets what knows how much of the budget of an open handoff was used, for those who look at it. Call it before
// Run.
func (h *Handoffs) Count(spent func(handoffID string) policy.Budget) { h.spent = spent }

// nouns are those of the entries that can change what a handoff allows.
var nouns = []string{"handoff", "agent", "user", "owner", "state"}

// Run keeps the cache current by following the ledger, until ctx ends.
func (h *Handoffs) Run(ctx context.Context) error {
	defer h.empty(false)
	caching := func(context.Context) error { h.empty(true); return nil }
	for e := range h.ledger.FollowNow(ctx, caching) {
		if noun, _, _ := strings.Cut(e.Kind, "."); slices.Contains(nouns, noun) {
			h.Forget()
		}
	}
	return nil
}

func (h *Handoffs) empty(live bool) {
	h.chains.Empty(live)
	h.held.Empty(live)
}

// Forget makes the next decision read the ledger. It is for callers of OpenIn, once they have committed.
func (h *Handoffs) Forget() {
	h.chains.Forget()
	h.held.Forget()
}

// write is ledger.Write for entries about handoffs: from the moment it returns this node knows of them. On others,
// following the ledger does it, and a decision is checked again in the transaction that records it.
func (h *Handoffs) write(ctx context.Context, fn func(*ledger.Tx) error) error {
	err := h.ledger.Write(ctx, fn)
	h.Forget()
	return err
}

// hop is a handoff of a chain, with the agent that has handed it on as it is now.
type hop struct {
	Handoff
	sender *roster.Identity // nil for a person or the server, and for an agent that was removed
}

// MaxDepth is how often work can be handed on.
const MaxDepth = 16

// read reads a handoff from its entries. A row of a handoff that the ledger does not know counts for nothing.
func read(p ledger.Prover, handoffID string) (h Handoff, err error) {
	entries, err := p.Entries(ledger.Query{Subject: handoffID, Kinds: kinds})
	if err != nil {
		return h, err
	}
	for i := range entries {
		if err := h.follow(&entries[i]); err != nil {
			return h, err
		}
	}
	if h.ID == "" {
		return h, notFound(handoffID)
	}
	return h, nil
}

func notFound(handoffID string) error {
	return fault.New(fault.NotFound, "There is no handoff %.80q. `signalbox handoffs ls` lists those that are open.",
		handoffID)
}

// chain reads a handoff and all above it, the first one first.
func (h *Handoffs) chain(ctx context.Context, p ledger.Prover, handoffID string) ([]hop, error) {
	var all []hop
	for next := handoffID; next != "" && len(all) <= MaxDepth; next = all[len(all)-1].Parent {
		one, err := read(p, next)
		if err != nil {
			return nil, err
		}
		at := hop{Handoff: one}
		if one.from != "" {
			sender, err := h.roster.ByID(ctx, one.Workspace, one.from)
			if err != nil && !fault.Is(err, fault.NotFound) {
				return nil, err
			}
			if err == nil {
				at.sender = &sender
			}
		}
		all = append(all, at)
	}
	slices.Reverse(all)
	return all, nil
}

// overIn says why a chain is over, "" if it is not. It is over with its first hop that is.
func overIn(chain []hop, now time.Time) string {
	for i := range chain {
		at := &chain[i]
		why := at.over(now)
		switch {
		case why != "":
		case at.from != "" && at.sender == nil:
			why = "the agent " + at.From + ", which handed it on, was removed"
		case at.sender != nil && at.sender.Suspended:
			why = "the agent " + at.From + ", which handed it on, is suspended"
		default:
			continue
		}
		if i < len(chain)-1 {
			return "the handoff " + at.ID + " above it is over: " + why
		}
		return why
	}
	return ""
}
