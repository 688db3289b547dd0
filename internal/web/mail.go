package web

import (
	"cmp"
	"strings"

	"signalbox/internal/address"
	"signalbox/internal/behalf"
	"signalbox/internal/gate"
	"signalbox/internal/mail"
	"signalbox/internal/mail/sent"
	"signalbox/internal/wire"
)

// mailRows is how many messages one page lists, and how many of a thread are shown.
const mailRows = 40

// mailView is the list of messages, and the one that is open beside it. Query is kept so that
// opening a message does not lose the filter.
type mailView struct {
	Status, Agent, Search string
	Query                 string // of the address, to keep the filter
	Messages              []mail.Summary
	Next                  string
	Open                  *letter
	Asked                 bool
}

// letter is one message, with its text taken out of the payload, the thread it belongs to, and the
// gate that holds or held it.
type letter struct {
	mail.Detail
	Text    string
	Context string         // what came with the text, as JSON
	Thread  []mail.Summary // the others of the thread, the oldest first
	Gate    *gate.Gate     // that holds it, or did
	Refusal string         // why who looks may not release it
	// Workspace and For are the sender's workspace, and on whose behalf it was sent; empty for those who may not see
	// them.
	Workspace string
	For       []behalf.Of
}

// Statuses are those that messages can be asked for by.
func (mailView) Statuses() []string { return sent.States }

// PageTitle is the subject of the message that was asked for.
func (v *mailView) PageTitle() string {
	if v.Asked && v.Open != nil {
		return cmp.Or(cut(60, v.Open.Subject), "Message")
	}
	return "Mail"
}

// loadMail reads the list and the open message.
func (w *Web) loadMail(r *Request) (any, error) {
	v := &mailView{
		Status: r.Query("status"), Agent: r.Query("agent"), Search: strings.TrimSpace(r.Query("q")),
		Asked: r.PathValue("id") != "",
	}
	if q := r.URL.RawQuery; q != "" {
		v.Query = "?" + q
	}
	page, err := w.Mail.Messages(r.Context(),
		mail.Filter{Status: v.Status, Agent: v.Agent, Search: v.Search, Cursor: r.Query("cursor"), Limit: mailRows})
	if err != nil {
		return nil, err
	}
	v.Messages = page.Messages
	// The next page of the list is the list's, and not that of the open message.
	if v.Next = nextPage(r, page.Next); v.Next != "" {
		v.Next = strings.Replace(v.Next, r.URL.Path, address.Mail.At(), 1)
	}
	open := r.PathValue("id")
	if open == "" && len(v.Messages) > 0 {
		open = v.Messages[0].ID
	}
	if open != "" {
		v.Open, err = w.loadLetter(r, open)
	}
	return v, err
}

// loadLetter reads one message with its thread and the gate that holds it. The gate is left out if
// the viewer may not see it: it belongs to the sender's workspace, the message to both.
func (w *Web) loadLetter(r *Request, id string) (*letter, error) {
	found, err := w.Mail.Message(r.Context(), id)
	if err != nil {
		return nil, err
	}
	l := &letter{Detail: found}
	l.read()
	thread, err := w.Mail.Messages(r.Context(), mail.Filter{Thread: l.Summary.Thread, Limit: mailRows})
	if err != nil {
		return nil, err
	}
	for i := range thread.Messages {
		// The list comes newest first, and a thread is read from its beginning.
		l.Thread = append([]mail.Summary{thread.Messages[i]}, l.Thread...)
	}
	if len(l.Path) > 0 { // the entry is of the sender's workspace, and not for the recipient's operators
		if e, err := w.ledger.Visible(r.Context(), l.Path[0].Entry); err == nil {
			l.Workspace, l.For = e.Workspace, behalf.Read(&e)
		}
	}
	if l.Summary.Gate == "" {
		return l, nil
	}
	g, err := w.Gates.Show(r.Context(), l.Summary.Gate)
	if err == nil {
		l.Gate = &g
		if err := g.Admits(r.Who, true); err != nil {
			l.Refusal = messageOf(err)
		}
	}
	return l, nil // a gate of the sender's workspace is not for the recipient's operators
}

// read takes the payload apart. It is the sender's and may be anything.
func (l *letter) read() {
	var p struct {
		Message wire.Raw `json:"message"`
		Context wire.Raw `json:"context"`
	}
	if wire.UnmarshalPart(l.Payload, &p) != nil {
		l.Context = pretty(l.Payload)
		return
	}
	l.Text, _ = wire.Text(p.Message)
	// An empty context is not worth a box.
	if len(p.Context) > 0 && string(p.Context) != "null" && string(p.Context) != "{}" {
		l.Context = pretty(p.Context)
	}
}

// Name is the part of an address before the @, as a list has room for it.
func (mailView) Name(mailAddress string) string {
	name, _, _ := strings.Cut(mailAddress, "@")
	return name
}

// Way says in words what a step on a message's way was.
func (l *letter) Way(kind string) string {
	if text := mailWays[kind]; text != "" {
		return text
	}
	return kind
}

// mailWays are the kinds of entries on a message's way, in words.
var mailWays = map[string]string{
	"message.routed": "Taken, on disk", "message.delivered": "Handed over", "message.acknowledged": "Acknowledged",
	"message.read": "Read", "message.failed": "Refused for good",
	"message.released": "Released from quarantine", "message.rejected": "Not delivered", "message.expired": "Expired",
	"message.erased":  "Text erased",
	"delivery.queued": "Webhook queued", "delivery.succeeded": "Webhook took it", "delivery.failed": "Webhook failed",
	"delivery.given_up": "Webhook given up",
}

// releaseMail votes on the gate that holds a message.
func (w *Web) releaseMail(r *Request) (Result, error) {
	at := Result{To: address.Message.At(r.PathValue("id"))}
	s, err := w.Mail.Message(r.Context(), r.PathValue("id"))
	if err != nil {
		return at, err
	}
	// The same form as in the inbox, so a rejection needs a reason here, too.
	b, err := ballot(r)
	if err != nil {
		return at, err
	}
	g, asked, err := w.vote(r, s.Gate, b)
	if err != nil {
		return at, err
	}
	if asked != nil {
		return Result{JSON: asked}, nil
	}
	at.Flash = outcome(&g, b.Approve)
	return at, nil
}
