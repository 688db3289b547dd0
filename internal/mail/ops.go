package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/attachment"
	"signalbox/internal/mail/history"
	"signalbox/internal/mail/injection"
	"signalbox/internal/mail/sent"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Summary is a message as operators see it in a list: everything but the payload.
type Summary struct {
	ID          string     `json:"id"`
	Workspace   string     `json:"workspace"` // of the sender; of the recipient for mail from elsewhere
	From        string     `json:"from"`
	To          string     `json:"to"`
	Thread      string     `json:"thread"`
	Subject     string     `json:"subject"`
	Priority    string     `json:"priority"`
	Kind        string     `json:"type"`
	Trust       Trust      `json:"trust"`
	Flags       []string   `json:"injection_flags"`
	Status      string     `json:"status"`
	Method      string     `json:"method"`
	Quarantine  string     `json:"quarantine,omitempty"`
	Gate        string     `json:"gate,omitempty"`
	Entry       int64      `json:"entry"` // the sequence number of message.routed
	At          time.Time  `json:"at"`
	ExpiresAt   time.Time  `json:"expires_at"`
	DeliveredAt *time.Time `json:"delivered_at"`
	ReadAt      *time.Time `json:"read_at"`  // by a receipt that the recipient sent, if ever
	EndedAt     *time.Time `json:"ended_at"` // null while it is queued or held
	Erased      bool       `json:"erased"`   // the payload is gone

	recipientWorkspace string
}

// MessagePage is a page of messages, newest first.
type MessagePage struct {
	Messages []Summary `json:"messages"`
	Next     string    `json:"next"`
}

// Detail is a message with its payload and everything that happened to it.
type Detail struct {
	Summary `json:"message"`
	Payload wire.Raw `json:"payload,omitempty"` // absent if it was erased
	// Attachments are what we know about its files, and Places say where its flags were found.
	Attachments []amp.Attachment `json:"attachments,omitempty"`
	Places      []injection.Mark `json:"injection_places,omitempty"`
	Path        []history.Step   `json:"path"`
}

// summaryColumns are the columns that scanSummary reads, in its order.
const summaryColumns = "id, workspace, recipient_workspace, sender_address, recipient_address, thread, subject, " +
	"priority, kind, trust, flags, status, method, quarantine, gate, mail_message.seq, at, expires_at, delivered_at, " +
	"read_at, ended_at, erased"

// scanSummary reads one row of summaryColumns. Times of 0 are absent ones.
func scanSummary(scan store.Scan) (Summary, error) {
	var s Summary
	var flags string
	var at, expires, delivered, read, ended int64
	err := scan(&s.ID, &s.Workspace, &s.recipientWorkspace, &s.From, &s.To, &s.Thread, &s.Subject, &s.Priority, &s.Kind,
		&s.Trust, &flags, &s.Status, &s.Method, &s.Quarantine, &s.Gate,
		&s.Entry, &at, &expires, &delivered, &read, &ended, &s.Erased)
	s.Flags = strings.FieldsFunc(flags, func(c rune) bool { return c == ',' })
	if s.Flags == nil {
		s.Flags = []string{}
	}
	s.At, s.ExpiresAt = time.UnixMicro(at).UTC(), time.UnixMicro(expires).UTC()
	s.DeliveredAt, s.ReadAt, s.EndedAt = store.Moment(delivered), store.Moment(read), store.Moment(ended)
	return s, err
}

// summary reads one message, if the caller's workspace sent or received it. A message of others
// is not found: a different answer would say that it exists.
func (m *Mail) summary(ctx context.Context, id string) (Summary, error) {
	s, err := scanSummary(func(dest ...any) error {
		return m.core.DB.QueryRow(ctx, "SELECT "+summaryColumns+" FROM mail_message WHERE id = $1", []any{id}, dest...)
	})
	// Both sides may see a message that crosses workspaces.
	visible := wire.InScope(ctx, s.Workspace) || wire.InScope(ctx, s.recipientWorkspace)
	if errors.Is(err, sql.ErrNoRows) || err == nil && !visible {
		return s, fault.New(fault.NotFound, "There is no message %.128q. GET /ops/messages lists those there are.", id)
	}
	return s, err
}

// Filter selects messages. Empty fields select everything.
type Filter struct {
	Agent     string // the sender or recipient: a name, an id or an address
	Thread    string
	Status    string
	Search    string // words, all of which are in subject or text
	Workspace string // of the sender or the recipient
	Cursor    string // MessagePage.Next of the page before
	Limit     int    // 1 to wire.MaxPage
}

// Messages lists the messages that the caller's workspace sent or received, newest first.
// Search and Agent read tables that follow the ledger, so they may be a moment behind.
func (m *Mail) Messages(ctx context.Context, f Filter) (MessagePage, error) {
	none := MessagePage{Messages: []Summary{}}
	cursor, err := wire.ParseCursor(f.Cursor, 1)
	if err != nil {
		return none, err
	}
	// Pages go by the entry: messages that arrive meanwhile do not shift them.
	before, err := wire.CursorNumber(cursor[0])
	if err != nil {
		return none, err
	}
	if f.Status != "" && !slices.Contains(sent.States, f.Status) {
		return none, fault.New(fault.InvalidRequest, "The status should be one of %s, and is %.40q.",
			strings.Join(sent.States, ", "), f.Status).About("status")
	}
	f.Search, f.Workspace = strings.TrimSpace(f.Search), cmp.Or(f.Workspace, wire.Scope(ctx))
	if !wire.InScope(ctx, f.Workspace) {
		return none, nil
	}
	// A name may be that of several agents, in several workspaces. None of them is an empty page.
	var agents []string
	if f.Agent != "" {
		if agents, err = m.Directory.IDs(ctx, f.Agent); err != nil || len(agents) == 0 {
			return none, err
		}
	}
	all, err := m.list(ctx, f, agents, before)
	if err != nil {
		return none, err
	}
	page := MessagePage{Messages: all}
	// A full page may be the last one; then the next is empty, which costs less than a count.
	if n := len(all); n > 0 && n == f.Limit {
		page.Next = wire.SeqCursor(all[n-1].Entry)
	}
	return page, nil
}

// list reads one page of messages before an entry; agents nil is all of them.
func (m *Mail) list(ctx context.Context, f Filter, agents []string, before int64) ([]Summary, error) {
	var where store.Where
	from := "mail_message"
	if agents != nil {
		// A message between two of them is listed once.
		distinct := ""
		if len(agents) > 1 {
			distinct = "DISTINCT "
		}
		from += " JOIN (SELECT " + distinct + "seq FROM mail_party WHERE agent IN (" + where.List(agents) +
			")) party ON party.seq = mail_message.seq"
	}
	// Keyset paging by entry: page 10,000 costs as much as the first.
	where.And("mail_message.seq < %s", before)
	if f.Workspace != "" {
		where.And("(workspace = %[1]s OR recipient_workspace = %[1]s)", f.Workspace)
	}
	if f.Thread != "" {
		where.And("mail_message.seq IN ("+ledger.SeqsOfTrace+"%s)", trace(f.Thread))
	}
	where.Equal("status", f.Status)
	if f.Search != "" {
		where.And(m.core.DB.Matching("mail_message.seq", "mail_words", where.Mark(m.core.DB.Words(f.Search))))
	}
	query := "SELECT " + summaryColumns + " FROM " + from + " WHERE " + where.String() +
		" ORDER BY mail_message.seq DESC LIMIT " + where.Mark(f.Limit)
	return store.All(m.core.DB.Reading(ctx), scanSummary, query, where.Args()...)
}

// getMessages answers GET /ops/messages.
func (m *Mail) getMessages(r *http.Request, p wire.Paging) (MessagePage, error) {
	q := r.URL.Query()
	return m.Messages(r.Context(), Filter{
		Agent: q.Get("agent"), Thread: q.Get("thread"), Status: q.Get("status"), Search: q.Get("search"),
		Workspace: q.Get("workspace"), Cursor: p.Cursor, Limit: p.Limit,
	})
}

// Message reads one message with its payload and its history, if the caller may see it.
func (m *Mail) Message(ctx context.Context, id string) (Detail, error) {
	s, err := m.summary(ctx, id)
	if err != nil {
		return Detail{}, err
	}
	d := Detail{Summary: s}
	// The payload is in the ledger alone; the tables have only what is listed and searched.
	e, err := m.core.Ledger.Entry(ctx, s.Entry)
	if err != nil {
		return d, err
	}
	if e.Body != nil {
		var b routed
		if err := e.Decode(&b); err != nil {
			return d, err
		}
		d.Payload, d.Attachments, d.Places = b.Payload, b.Meta.Files, b.Meta.Marks
		if d.Attachments == nil { // stored before attachments were kept with the message
			d.Attachments, _ = attachment.Elsewhere(b.Payload, nil)
		}
	}
	d.Path, err = history.Of(ctx, m.core.Ledger, history.Message{ID: s.ID, Trace: trace(s.Thread), Entry: s.Entry})
	return d, err
}

// getMessage answers GET /ops/messages/{id}.
func (m *Mail) getMessage(r *http.Request) (Detail, error) {
	return m.Message(r.Context(), r.PathValue("id"))
}
