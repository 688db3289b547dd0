package mail

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
)

// abroad settles that a recipient is another provider's.
func (m *Mail) abroad(ctx context.Context, l *letter) error {
	if err := m.Federation.Admits(ctx, l.to.Provider); err != nil {
		e := fault.From(err)
		return fault.Wrap(e.Cause, fault.ExternalProvider, "%s is with the provider %s. %s", l.to, l.to.Provider,
			e.Message).About("to")
	}
	l.leaves(federation.Target(l.to.Provider), l.to.String())
	return nil
}

// elsewhere settles that a recipient of our provider, who is not here, is with another
// host of the mesh. notHere is the answer when no host has it.
func (m *Mail) elsewhere(ctx context.Context, l *letter, notHere error) error {
	to := m.Domains.Home(l.to)
	host, err := m.Federation.Elsewhere(ctx, to)
	if err != nil {
		return err
	}
	if host == "" {
		return notHere
	}
	l.leaves(host, to.String())
	return nil
}

// leaves puts a message into the queue of what goes to another server.
func (l *letter) leaves(to federation.Target, address string) {
	l.remote = to
	l.recipient = roster.Identity{ID: to.Queue(), Address: address}
}

// export queues the call to the other provider, or host.
func (m *Mail) export(tx *ledger.Tx, l *letter) error {
	_, err := deliver.Queue(tx, deliver.Delivery{
		Workspace: l.workspace, Sender: l.remote.Sender(), Target: string(l.remote), Payload: []byte(l.meta.Envelope.ID),
		OrderKey:    string(l.remote),
		GiveUpAfter: TTL, Actor: l.sender.Actor(), Trace: trace(l.meta.Envelope.ThreadID),
	})
	return err
}

// carrier takes messages to other providers and hosts.
type carrier struct{ *Mail }

// Send makes one call.
func (s carrier) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	to := federation.Target(a.Target)
	p, err := s.inQueueOf(ctx, to.Queue(), string(a.Payload))
	if err != nil {
		return deliver.Result{Class: "internal", Text: fault.From(err).Message}
	}
	if p == nil {
		return deliver.Result{Verdict: deliver.Succeeded, Text: "The message has left the queue."}
	}
	reply, failed := s.Federation.Send(ctx, to, &federation.Parcel{
		Message:  p.Message,
		Replaces: s.Directory.Replaced(ctx, p.Envelope.From, p.SenderKey),
	})
	if failed != nil {
		return *failed
	}
	return s.judgeReply(ctx, a, p, reply)
}

// judgeReply records what the other provider, or host, said.
func (s carrier) judgeReply(ctx context.Context, a deliver.Attempt, p *Pending, reply federation.Reply) deliver.Result {
	to, status := federation.Target(a.Target), reply.Status
	r := deliver.Result{
		Status: status, Class: "status",
		Text: fmt.Sprintf("%s answered %d: %.200s", a.Target, status, reply.Text),
	}
	end := func(kind string, note string) error {
		return s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{
				Workspace: a.Workspace, Kind: kind, Actor: "system", Subject: p.ID, Trace: trace(p.Envelope.ThreadID),
				Body: about{Seq: p.seq, Agent: to.Queue(), Place: p.place, Via: wayTo(to), Note: note},
			})
			return nil
		})
	}
	switch {
	case status == http.StatusOK, status == http.StatusAccepted, status == http.StatusConflict &&
		strings.Contains(string(reply.Text), string(fault.DuplicateMessage)):
		if end(kindAcked, "") != nil {
			return deliver.Result{Class: "internal", Text: "The provider has the message, and that could not be recorded."}
		}
		return deliver.Result{Verdict: deliver.Succeeded, Status: status}
	case refuses(status):
		if end(kindFailed, r.Text) != nil {
			return deliver.Result{Class: "internal", Text: "The provider refuses the message, and that could not be recorded."}
		}
		r.Verdict = deliver.Hopeless
	}
	return r
}

// wayTo is how a message reaches a target.
func wayTo(to federation.Target) string {
	if _, mesh := to.Host(); mesh {
		return ByMesh
	}
	return ByFederation
}

// refuses reports whether an answer is about the message, so that to send it again is no use.
func refuses(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// inQueueOf reads a message if it is in the queue, nil when it is not.
func (m *Mail) inQueueOf(ctx context.Context, agent, id string) (*Pending, error) {
	var place int64
	err := m.core.DB.QueryRow(ctx, "SELECT place FROM mail_message WHERE id = $1 AND recipient = $2 AND place <> 0",
		[]any{id, agent}, &place)
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

// Located says that an agent is here.
type Located struct {
	Address string `json:"address"`
	Host    string `json:"host"`
}

// Locate finds an agent of this host, for another host of this provider.
func (m *Mail) Locate(ctx context.Context, address string) (Located, error) {
	a, err := m.Domains.Parse(address)
	if err != nil || !m.Domains.Ours(a.Provider) {
		return Located{}, fault.New(fault.NotFound, "%.254q is no address of this provider.", address)
	}
	found, err := m.Directory.Find(ctx, m.Domains.Home(a))
	return Located{found.Address, m.Mesh.Host}, err
}
