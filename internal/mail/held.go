package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// quarantineTTL is how long a message waits for a person to look at it.
const quarantineTTL = 72 * time.Hour

// hold stores a message outside of the queue, and asks a person: quarantine is a gate
// like any other, in the same inbox.
func (m *Mail) hold(ctx context.Context, l *letter, rules gate.Rules, risk, rule, reason string) (Answer, error) {
	m.complete(l)
	id := l.meta.Envelope.ID
	l.meta.Quarantine, l.meta.Gate = amp.NewID("qtn", m.core.Now()), gate.NewID()
	body, err := l.encode()
	if err != nil {
		return Answer{}, err
	}
	opening := gate.Opening{
		Project: "mail", Agent: l.sender.ID, AgentName: l.sender.Name, Requester: l.sender.Actor(), Risk: risk,
		Origin: gate.Origin{Protocol: Name, Reference: id}, Rules: rules, Digest: l.meta.PayloadSHA256,
		Shown: gate.Shown{
			Title: firstLine("Message to "+l.to.String()+": "+l.subject, 120), Summary: l.message, ProposedAction: "Deliver the message to " + l.to.String(), Rule: rule, Reason: reason,
			Facts: []gate.Fact{{Name: "from", Value: l.sender.Address}, {Name: "trust", Value: string(l.trust)}, {Name: "quarantine", Value: l.meta.Quarantine}},
		},
	}
	prepared, err := gate.Prepare(opening)
	if err != nil {
		return Answer{}, err
	}
	var at time.Time
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		at = tx.Now()
		if err := attachment.Claim(tx, l.meta.Attachments); err != nil {
			return err
		}
		l.append(tx, body)
		prepared.Open(tx, l.meta.Gate, l.workspace, trace(l.meta.Envelope.ThreadID))
		return nil
	})
	if err != nil {
		return Answer{}, err
	}
	m.judge(ctx, l.sender)
	return Answer{ID: id, Status: Held, Method: ByRelay, QueuedAt: amp.Stamp(at), QuarantineID: l.meta.Quarantine, GateID: l.meta.Gate, Warnings: l.warned()}, nil
}

// resolved draws the consequence of a decision in the transaction that takes it.
func (m *Mail) resolved(tx *ledger.Tx, g gate.Gate) error {
	var b about
	var recipientWorkspace, address, thread, status string
	err := tx.QueryRow("SELECT seq, recipient, recipient_workspace, recipient_address, thread, status, expires_at FROM mail_message WHERE id = $1", []any{g.Origin.Reference},
		&b.Seq, &b.Agent, &recipientWorkspace, &address, &thread, &status, &b.Until)
	if errors.Is(err, sql.ErrNoRows) || err == nil && status != Held {
		return nil
	}
	if err != nil {
		return err
	}
	kind := kindRejected
	domain, remote := strings.CutPrefix(b.Agent, "@")
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
		// The time that the decision took is not the recipient's fault.
		b.Until = max(b.Until, tx.Now().Add(24*time.Hour).UnixMicro())
	}
	tx.Append(ledger.Event{Workspace: g.Workspace, Kind: kind, Actor: "system", Subject: g.Origin.Reference, Trace: g.Trace, Body: b})
	if remote && kind == kindReleased {
		l := &letter{workspace: g.Workspace, remote: domain}
		l.meta.Envelope.ID, l.meta.Envelope.ThreadID = g.Origin.Reference, thread
		return m.export(tx, l)
	}
	if profile := m.Directory.Profile(b.Agent); kind == kindReleased && profile.WebhookURL != "" {
		return m.call(tx, roster.Identity{ID: b.Agent, Workspace: recipientWorkspace, Address: address}, g.Origin.Reference, thread)
	}
	return nil
}

// Quarantined is a message that waits for a person, or has.
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
	Text      string    `json:"message,omitempty"` // only where one is shown
}

// QuarantineList is a page of them.
type QuarantineList struct {
	Items  []Quarantined `json:"items"`
	Count  int           `json:"count"`
	Total  int64         `json:"total"`
	Cursor string        `json:"cursor,omitempty"`
}

// QuarantineAnswer is what becomes of one.
type QuarantineAnswer struct {
	ID        string `json:"quarantine_id"`
	Status    string `json:"status"`
	MessageID string `json:"message_id"`
	Delivered bool   `json:"delivered"`
}

const inWalls = "($1 = '' OR workspace = $1 OR recipient_workspace = $1)"

func (m *Mail) getQuarantine(w http.ResponseWriter, r *http.Request) error {
	limit, err := wire.Limit(r)
	if err != nil {
		return err
	}
	after, err := wire.ReadCursor(r, 1)
	if err != nil {
		return err
	}
	seq, _ := strconv.ParseInt(cmp.Or(after[0], "0"), 10, 64)
	scope, status := wire.Scope(r.Context()), r.URL.Query().Get("status")
	condition := inWalls + " AND quarantine <> ''"
	switch status {
	case "", "all":
	case "pending":
		condition += " AND status = 'quarantined'"
	case "rejected":
		condition += " AND status = 'rejected'"
	case "approved":
		condition += " AND status <> 'quarantined' AND status <> 'rejected'"
	default:
		return fault.New(fault.InvalidField, "status should be pending, approved, rejected or all, and is %.40q.", status).About("status")
	}
	out := QuarantineList{Items: []Quarantined{}}
	if err := m.core.DB.QueryRow(r.Context(), "SELECT count(*) FROM mail_message WHERE "+condition, []any{scope}, &out.Total); err != nil {
		return err
	}
	ids, err := store.All(m.core.DB.Reading(r.Context()), func(scan store.Scan) (id string, err error) {
		err = scan(&id, &seq)
		return id, err
	}, "SELECT quarantine, seq FROM mail_message WHERE "+condition+" AND seq > $2 ORDER BY seq LIMIT $3", scope, seq, limit)
	if err != nil {
		return err
	}
	for _, id := range ids {
		q, err := m.quarantined(r.Context(), id)
		if err != nil {
			return err
		}
		q.Text = ""
		out.Items = append(out.Items, q)
	}
	if out.Count = len(out.Items); out.Count == limit {
		out.Cursor = wire.Cursor(strconv.FormatInt(seq, 10))
	}
	return wire.Reply(w, http.StatusOK, out)
}

// quarantined reads one, as far as the caller may see it.
func (m *Mail) quarantined(ctx context.Context, id string) (Quarantined, error) {
	var message string
	err := m.core.DB.QueryRow(ctx, "SELECT id FROM mail_message WHERE quarantine = $2 AND quarantine <> '' AND "+inWalls, []any{wire.Scope(ctx), id}, &message)
	if errors.Is(err, sql.ErrNoRows) {
		return Quarantined{}, fault.New(fault.NotFound, "There is nothing in quarantine under %.80q. GET /v1/quarantine lists what there is.", id)
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
	q := Quarantined{
		ID: id, MessageID: message, Status: string(g.Status), From: shown.From, To: shown.To, Subject: shown.Subject, Flags: shown.Flags,
		Reason: g.Reason, GateID: g.ID, At: shown.At, ExpiresAt: shown.At.Add(quarantineTTL), Text: g.Summary,
	}
	if g.ExpiresAt != nil {
		q.ExpiresAt = *g.ExpiresAt
	}
	if g.Cause == gate.ByExpiry && g.Status == gate.Rejected {
		q.Status = "expired"
	}
	return q, nil
}

func (m *Mail) getQuarantined(w http.ResponseWriter, r *http.Request) error {
	q, err := m.quarantined(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, q)
}

// postQuarantined approves or rejects, as a vote of the operator on the gate.
func (m *Mail) postQuarantined(approve bool) wire.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := m.quarantined(r.Context(), r.PathValue("id"))
		if err != nil {
			return err
		}
		if q.Status == "expired" {
			return fault.New(fault.QuarantineExpired, "The message waited until %s, and was rejected then.", amp.Stamp(q.ExpiresAt))
		}
		g, err := m.core.Gates.Vote(r.Context(), roster.From(r.Context()), q.GateID, gate.Ballot{Approve: approve})
		if err != nil {
			return err
		}
		return wire.Reply(w, http.StatusOK, QuarantineAnswer{q.ID, string(g.Status), q.MessageID, g.Status == gate.Approved})
	}
}
