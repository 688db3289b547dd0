package mail

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// peerSender is the kind of deliveries to other providers.
const peerSender = "mail-peer"

// ByFederation is how a message reaches another provider.
const ByFederation = "federation"

// queueOf is the name of the queue of what waits for a provider.
func queueOf(domain string) string { return "@" + domain }

// abroad settles that a recipient is another provider's.
func (m *Mail) abroad(ctx context.Context, l *letter) error {
	if _, err := m.peer(ctx, l.to.Provider); err != nil {
		e := fault.From(err)
		return fault.Wrap(e.Cause, fault.ExternalProvider, "%s is with the provider %s. %s", l.to, l.to.Provider, e.Message).About("to")
	}
	l.recipient = roster.Identity{ID: queueOf(l.to.Provider), Address: l.to.String()}
	l.remote = l.to.Provider
	return nil
}

// export queues the call to the other provider, or host.
func (m *Mail) export(tx *ledger.Tx, l *letter) error {
	kind := peerSender
	if strings.HasPrefix(l.remote, meshPrefix) {
		kind = meshSender
	}
	_, err := deliver.Queue(tx, deliver.Delivery{
		Workspace: l.workspace, Sender: kind, Target: l.remote, Payload: []byte(l.meta.Envelope.ID), OrderKey: l.remote,
		GiveUpAfter: TTL, Actor: l.sender.Actor(), Trace: trace(l.meta.Envelope.ThreadID),
	})
	return err
}

// providers sends messages to other providers.
type providers struct{ *Mail }

// Send makes one call.
func (s providers) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	id := string(a.Payload)
	p, err := s.inQueueOf(ctx, queueOf(a.Target), id)
	if err != nil {
		return deliver.Result{Class: "internal", Text: fault.From(err).Message}
	}
	if p == nil {
		return deliver.Result{Verdict: deliver.Succeeded, Text: "The message has left the queue."}
	}
	to, err := s.peer(ctx, a.Target)
	if err != nil {
		return deliver.Result{Class: "discovery", Text: fault.From(err).Message}
	}
	body, err := p.JSON()
	if err != nil {
		return deliver.Result{Verdict: deliver.Hopeless, Class: "internal", Text: "The message cannot be written."}
	}
	stampText := strconv.FormatInt(s.core.Now().Unix(), 10)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.endpoint+"/federation/deliver", bytes.NewReader(body))
	if err != nil {
		return deliver.Result{Class: "discovery", Text: "The endpoint of the provider is no address."}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("X-AMP-Provider", s.Domains.Own)
	req.Header.Set("X-AMP-Timestamp", stampText)
	req.Header.Set("X-AMP-Signature", base64.StdEncoding.EncodeToString(ed25519.Sign(s.provider, append([]byte(stampText+"."), body...))))
	if replaced := s.Directory.Replaced(ctx, p.Envelope.From, p.SenderKey); replaced != "" {
		req.Header.Set("X-AMP-Key-Revoked", replaced)
	}
	res, err := s.core.Outbox.Client().Do(req)
	if err != nil {
		return deliver.ExplainDial(err)
	}
	defer func() { _ = res.Body.Close() }()
	answer, _ := io.ReadAll(io.LimitReader(res.Body, maxDocument)) // the status has decided
	return s.judgePeer(ctx, a, p, res.StatusCode, answer)
}

// judgePeer records what the other provider, or host, said.
func (m *Mail) judgePeer(ctx context.Context, a deliver.Attempt, p *Pending, status int, answer []byte) deliver.Result {
	r := deliver.Result{Status: status, Class: "status", Text: fmt.Sprintf("%s answered %d: %.200s", a.Target, status, answer)}
	via := ByFederation
	if strings.HasPrefix(a.Target, meshPrefix) {
		via = ByMesh
	}
	end := func(kind string, note string) error {
		return m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{Workspace: a.Workspace, Kind: kind, Actor: "system", Subject: p.ID, Trace: trace(p.Envelope.ThreadID), Body: about{Seq: p.seq, Agent: queueOf(a.Target), Place: p.place, Via: via, Note: note}})
			return nil
		})
	}
	switch {
	case status == http.StatusOK, status == http.StatusAccepted, status == http.StatusConflict && strings.Contains(string(answer), string(fault.DuplicateMessage)):
		if end(kindAcked, "") != nil {
			return deliver.Result{Class: "internal", Text: "The provider has the message, and that could not be recorded."}
		}
		return deliver.Result{Verdict: deliver.Succeeded, Status: status}
	case status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests:
		if end(kindFailed, r.Text) != nil {
			return deliver.Result{Class: "internal", Text: "The provider refuses the message, and that could not be recorded."}
		}
		r.Verdict = deliver.Hopeless
	}
	return r
}

// inQueueOf reads a message if it is in the queue, nil when it is not.
func (m *Mail) inQueueOf(ctx context.Context, agent, id string) (*Pending, error) {
	var place int64
	err := m.core.DB.QueryRow(ctx, "SELECT place FROM mail_message WHERE id = $1 AND recipient = $2 AND place <> 0", []any{id, agent}, &place)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	page, err := m.fetch(ctx, agent, place-1, 1)
	if err != nil || len(page) == 0 || page[0].ID != id {
		return nil, err
	}
	return &page[0], nil
}

// Accepted is the answer to another provider.
type Accepted struct {
	Accepted  bool   `json:"accepted"`
	ID        string `json:"id"`
	Delivered bool   `json:"delivered"`
	Method    string `json:"method"`
}

// The limits of what other providers send, a minute.
const (
	perProvider  = 100
	perHost      = 1000
	perRecipient = 20
)

func (m *Mail) postFederation(w http.ResponseWriter, r *http.Request) error {
	domain := strings.ToLower(r.Header.Get("X-AMP-Provider"))
	stampText, signature := r.Header.Get("X-AMP-Timestamp"), r.Header.Get("X-AMP-Signature")
	for name, value := range map[string]string{"X-AMP-Provider": domain, "X-AMP-Timestamp": stampText, "X-AMP-Signature": signature} {
		if value == "" {
			return fault.New(fault.MissingHeader, "The header %s is missing.", name)
		}
	}
	if len(domain) > amp.MaxAddress || !domainForm(domain) || m.Domains.Ours(domain) {
		return notTrusted(domain)
	}
	// Who has not shown who they are is counted by where they come from.
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	if _, err := m.core.Roster.Take(roster.Identity{ID: "from:" + host, Name: host}, "federation", perHost); err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(stampText, 10, 64)
	if err != nil {
		return fault.New(fault.InvalidField, "The header X-AMP-Timestamp should be a time in seconds, and is %.40q.", stampText)
	}
	if err := m.timely(time.Unix(seconds, 0)); err != nil {
		return err
	}
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	from, err := m.peer(r.Context(), domain)
	if err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(signature)
	if err != nil || !ed25519.Verify(from.key, append([]byte(stampText+"."), body...), raw) {
		return fault.New(fault.SignatureInvalid, "X-AMP-Signature is not one of the key of %s over the time, a dot and the body.", domain)
	}
	left, err := m.core.Roster.Take(roster.Identity{ID: "provider:" + domain, Name: domain}, "federation", perProvider)
	left.SetHeaders(w.Header())
	if err != nil {
		return err
	}
	answer, err := m.Import(r.Context(), domain, body, r.Header.Get("X-AMP-Key-Revoked"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, Accepted{true, answer.ID, answer.Status == Delivered, answer.Method})
}

// domainForm: a provider has at least two labels.
func domainForm(domain string) bool {
	labels := strings.Split(domain, ".")
	for _, label := range labels {
		if !amp.LabelForm.MatchString(label) {
			return false
		}
	}
	return len(labels) >= 2
}

// timely refuses what is too old, or from the future.
func (m *Mail) timely(at time.Time) error {
	switch off := at.Sub(m.core.Now()); {
	case off > time.Minute:
		return fault.New(fault.TimestampFuture, "%s is more than a minute ahead of us. Set the clock.", amp.Stamp(at))
	case off < -5*time.Minute:
		return fault.New(fault.TimestampExpired, "%s is more than five minutes past.", amp.Stamp(at))
	}
	return nil
}

// failPeer is fail, with what other providers look for.
func failPeer(w http.ResponseWriter, err error) {
	e := fault.From(err)
	no := false
	failWith(w, e, &no)
}
