package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strconv"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/errand"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Quarantined is a held message in the protocol's form. It is a view of a gate and its message,
// and stores nothing: it is made by hold, and ends with the gate, by a vote or by expiry.
type Quarantined struct {
	ID        string    `json:"quarantine_id"`
	MessageID string    `json:"message_id"`
	Status    string    `json:"status"` // pending, approved, rejected or expired
	From      string    `json:"from"`
	To        string    `json:"to"`
	Subject   string    `json:"subject"`
	Flags     []string  `json:"injection_flags"`
	Reason    string    `json:"reason"`
	GateID    string    `json:"gate_id"`
	At        time.Time `json:"quarantined_at"`
	ExpiresAt time.Time `json:"expires_at"`
	Text      string    `json:"message,omitempty"` // absent in lists
}

// QuarantineList is a page of held messages, oldest first.
type QuarantineList struct {
	Items  []Quarantined `json:"items"`
	Count  int           `json:"count"`
	Total  int64         `json:"total"`
	Cursor string        `json:"cursor,omitempty"`
}

// QuarantineDecision may be sent with a decision. The protocol knows none, so all of it may be left out.
type QuarantineDecision struct {
	Reason string `json:"reason,omitempty"`
	Digest string `json:"digest,omitempty"` // of the gate as it was shown
}

// QuarantineAnswer is the answer to a decision about a held message.
type QuarantineAnswer struct {
	ID        string `json:"quarantine_id"`
	Status    string `json:"status"`
	MessageID string `json:"message_id"`
	Delivered bool   `json:"delivered"`
}

// visibleInScope is the condition that the workspace in $1 sent or received a message; "" is an operator
// of all workspaces.
const visibleInScope = "($1 = '' OR workspace = $1 OR recipient_workspace = $1)"

// stateConditions are the values of the query parameter status, with the conditions that they stand for.
var stateConditions = map[string]string{
	"": "", "all": "", "pending": " AND status = 'quarantined'", "rejected": " AND status = 'rejected'",
	"approved": " AND status <> 'quarantined' AND status <> 'rejected'",
}

// Quarantine lists messages that are or were held, after an entry, as far as the calling operator
// may see them. Total counts all of that status.
func (m *Mail) Quarantine(ctx context.Context, status string, after int64, limit int) (QuarantineList, error) {
	out := QuarantineList{Items: []Quarantined{}}
	decided, known := stateConditions[status]
	if !known {
		return out, fault.New(fault.InvalidField, "status should be pending, approved, rejected or all, and is %.40q.",
			status).About("status")
	}
	scope, condition := wire.Scope(ctx), visibleInScope+" AND quarantine <> ''"+decided
	if err := m.core.DB.QueryRow(ctx, "SELECT count(*) FROM mail_message WHERE "+condition, []any{scope},
		&out.Total); err != nil {
		return out, err
	}
	last := after
	ids, err := store.All(m.core.DB.Reading(ctx), func(scan store.Scan) (id string, err error) {
		err = scan(&id, &last)
		return id, err
	}, "SELECT quarantine, seq FROM mail_message WHERE "+condition+" AND seq "+
		"> $2 ORDER BY seq LIMIT $3", scope, after, limit)
	if err != nil {
		return out, err
	}
	// One look-up for each of a page; this list is short and seldom read.
	for _, id := range ids {
		q, err := m.Quarantined(ctx, id)
		if err != nil {
			return out, err
		}
		q.Text = ""
		out.Items = append(out.Items, q)
	}
	if out.Count = len(out.Items); out.Count == limit {
		out.Cursor = wire.SeqCursor(last)
	}
	return out, nil
}

// Quarantined reads one held message, with its text, if the calling operator may see it.
func (m *Mail) Quarantined(ctx context.Context, id string) (Quarantined, error) {
	var message string
	err := m.core.DB.QueryRow(ctx,
		"SELECT id FROM mail_message WHERE quarantine = $2 AND quarantine <> '' AND "+visibleInScope,
		[]any{wire.Scope(ctx), id}, &message)
	if errors.Is(err, sql.ErrNoRows) {
		return Quarantined{}, fault.New(fault.NotFound,
			"There is nothing in quarantine under %.80q. GET /v1/quarantine lists what there is.", id)
	}
	if err != nil {
		return Quarantined{}, err
	}
	shown, err := m.summary(ctx, message)
	if err != nil {
		return Quarantined{}, err
	}
	g, err := m.core.Gates.Get(ctx, shown.Gate)
	if err != nil {
		return Quarantined{}, err
	}
	// The gate knows the decision and the text that was shown; the message knows the rest.
	q := Quarantined{
		ID: id, MessageID: message, Status: string(g.Status), From: shown.From, To: shown.To, Subject: shown.Subject,
		Flags:  shown.Flags,
		Reason: g.Reason, GateID: g.ID, At: shown.At, ExpiresAt: shown.At.Add(quarantineTTL), Text: g.Summary,
	}
	if g.ExpiresAt != nil {
		q.ExpiresAt = *g.ExpiresAt
	}
	// The protocol tells an expired hold from a rejected one; a gate does not.
	if g.Cause == gate.ByExpiry && g.Status == gate.Rejected {
		q.Status = "expired"
	}
	return q, nil
}

// Release approves or rejects a held message. It is a vote on the gate, so quorum and the other
// rules of gates hold, and the answer may be that it is still pending.
func (m *Mail) Release(ctx context.Context, who roster.Identity, id string, approve bool, d QuarantineDecision,
) (QuarantineAnswer, error) {
	q, err := m.Quarantined(ctx, id)
	if err != nil {
		return QuarantineAnswer{}, err
	}
	if q.Status == "expired" {
		return QuarantineAnswer{}, fault.New(fault.QuarantineExpired,
			"The message was held until %s, and then rejected, since nobody had decided.",
			amp.Stamp(q.ExpiresAt))
	}
	g, err := m.core.Gates.Vote(ctx, who, q.GateID, gate.Ballot{Approve: approve, Note: d.Reason, Digest: d.Digest})
	return QuarantineAnswer{q.ID, string(g.Status), q.MessageID, g.Status == gate.Approved}, err
}

// getQuarantine answers GET /v1/quarantine.
func (m *Mail) getQuarantine(r *http.Request, p wire.Paging) (QuarantineList, error) {
	cursor, err := wire.ParseCursor(p.Cursor, 1)
	if err != nil {
		return QuarantineList{}, err
	}
	after, _ := strconv.ParseInt(cursor[0], 10, 64) // what is no number begins anew
	return m.Quarantine(r.Context(), r.URL.Query().Get("status"), after, p.Limit)
}

func (m *Mail) getQuarantined(r *http.Request) (Quarantined, error) {
	return m.Quarantined(r.Context(), r.PathValue("id"))
}

// postQuarantined makes the handlers of approve and reject.
func (m *Mail) postQuarantined(approve bool) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var d QuarantineDecision
		body, err := wire.Read(w, r, 1<<16)
		if err == nil && len(body) > 0 {
			err = wire.UnmarshalForeign(body, &d)
		}
		if err != nil {
			return err
		}
		answer, err := m.Release(r.Context(), roster.From(r.Context()), r.PathValue("id"), approve, d)
		if err != nil {
			return err
		}
		return wire.Reply(w, http.StatusOK, answer)
	}
}

// quarantineTTL is how long a message waits for a decision before it is rejected (MSG-50). A rule
// of the policy that gates messages may set another time.
const quarantineTTL = 72 * time.Hour

// hold stores a message outside the queue and opens a gate for it, in one transaction. The
// gate's digest is that of the payload, so what is approved is what will be delivered.
func (m *Mail) hold(ctx context.Context, l *letter, rules gate.Rules, risk, rule, reason string) (Answer, error) {
	m.complete(l)
	id := l.meta.Envelope.ID
	l.meta.Quarantine, l.meta.Gate = amp.NewID("qtn", m.core.Now()), gate.NewID()
	body, err := l.encode(l.decision.Record)
	if err != nil {
		return Answer{}, err
	}
	// All that will be delivered is shown: it is the text that is in doubt.
	opening := gate.Opening{
		Project: "mail", Of: l.decision.Record.Behalf(), Agent: l.sender.ID, AgentName: l.sender.Name, Requester: l.sender.Actor(), Risk: risk,
		Origin: gate.Origin{Protocol: Name, Reference: id, Run: m.core.AskedBy(ctx, l.decision.Record.Behalf(), l.sender, ""), Outlasts: true},
		Rules:  rules, Digest: l.meta.PayloadSHA256,
		Shown: gate.Shown{
			Title: amp.FirstLine("Message to "+l.to.String()+": "+l.Subject, 120), Summary: l.Text,
			ProposedAction: "Deliver the message to " + l.to.String(), Rule: rule, Reason: reason,
			Facts: append(gate.OnBehalf(&l.decision.Record, l.Named.User), []gate.Fact{
				{Name: "subject", Value: l.Subject},
				{Name: "from", Value: l.sender.Address},
				{Name: "trust", Value: string(l.trust)},
				{Name: "quarantine", Value: l.meta.Quarantine},
			}...),
		},
	}
	opening.Attach("payload", l.Payload)   // with context and attachments
	prepared, err := gate.Prepare(opening) // outside the transaction, which everybody else waits for
	if err != nil {
		return Answer{}, err
	}
	var at time.Time
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		at = tx.Now()
		if err := l.store(tx, body); err != nil {
			return err
		}
		prepared.Open(tx, l.meta.Gate, l.workspace, trace(l.meta.Envelope.ThreadID))
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	m.suspendIfCritical(ctx, l.sender)
	return Answer{
		ID: id, Status: Held, Method: ByRelay, QueuedAt: amp.Stamp(at), QuarantineID: l.meta.Quarantine,
		GateID: l.meta.Gate, Warnings: l.warningList(),
	}, nil
}

// applyDecision is the consequence of a decision about a held message, in the transaction that takes
// the decision: an approved message enters the queue, a rejected one ends. It does nothing for a
// message that has ended in the meantime, so it may run twice.
func (m *Mail) applyDecision(tx *ledger.Tx, g gate.Gate) error {
	var b transition
	var recipientWorkspace, address, thread, status string
	err := tx.QueryRow("SELECT seq, recipient, recipient_workspace, recipient_address, thread, status, expires_at FROM "+
		"mail_message WHERE id = $1", []any{g.Origin.Reference},
		&b.Seq, &b.Agent, &recipientWorkspace, &address, &thread, &status, &b.Until)
	if errors.Is(err, sql.ErrNoRows) || err == nil && status != Held {
		return nil
	}
	if err != nil {
		return err
	}
	// The recipient may have left while the message was held; then an approval comes too late.
	kind := kindRejected
	target, remote := federation.QueueTarget(b.Agent)
	if g.Status == gate.Approved && remote {
		kind = kindReleased
	} else if g.Status == gate.Approved {
		kind = kindReleased
		if _, err := m.core.Roster.AgentIn(tx, recipientWorkspace, b.Agent); fault.Is(err, fault.NotFound) {
			kind, b.Note = kindRejected, "the recipient is gone"
		} else if err != nil {
			return err
		}
	}
	if kind == kindRejected {
		b.Note = cmp.Or(b.Note, g.Note)
		b.Until = 0
	} else {
		// MSG-50: the decision may have used up the message's time; the recipient gets a day.
		b.Until = max(b.Until, tx.Now().Add(24*time.Hour).UnixMicro())
	}
	tx.Append(ledger.Event{
		Workspace: g.Workspace, Kind: kind, Actor: "system", Subject: g.Origin.Reference,
		Trace: g.Trace, Body: b,
	})
	if kind == kindReleased && !remote {
		if err := m.handOnReleased(tx, b.Seq); err != nil {
			return err
		}
	}
	// Released mail takes the same ways as sent mail: to another server, to a webhook, or to a poll.
	if remote && kind == kindReleased {
		l := &letter{workspace: g.Workspace, remote: target}
		l.meta.Envelope.ID, l.meta.Envelope.ThreadID = g.Origin.Reference, thread
		_, err := deliver.Queue(tx, l.export())
		return err
	}
	if profile := m.Directory.Profile(b.Agent); kind == kindReleased && profile.WebhookURL != "" {
		recipient := roster.Identity{ID: b.Agent, Workspace: recipientWorkspace, Address: address}
		_, err := deliver.Queue(tx, webhookCall(recipient, g.Origin.Reference, thread))
		return err
	}
	return nil
}

// handOnReleased hands on what a message asks for that was held until now.
func (m *Mail) handOnReleased(tx *ledger.Tx, seq int64) error {
	e, err := tx.Prover().At(seq)
	var b routed
	if err := cmp.Or(err, e.Decode(&b)); err != nil {
		return err
	}
	sender := roster.Identity{ID: b.Meta.Sender, Workspace: e.Workspace}
	return errand.Released(context.Background(), &m.core, tx, b.Meta.errand(sender),
		(*rulebook.Record)(b.Decision))
}
