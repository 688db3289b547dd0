package mail

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
)

// active refuses an agent that is suspended, and tells one that lost its address to another host so (MSG-99).
func (m *Mail) active(ctx context.Context, who roster.Identity) error {
	suspended := directory.Active(who)
	if suspended == nil {
		return nil
	}
	if a, err := m.Domains.Parse(who.Address); err == nil {
		if lost := m.Homes.Lost(ctx, a); lost != nil {
			return lost
		}
	}
	return suspended
}

// resolveForeign settles that the recipient is with another provider, if mail is exchanged with it. The
// provider is discovered now, so that a typing error is an answer and not a failed delivery.
func (m *Mail) resolveForeign(ctx context.Context, l *letter) error {
	if err := m.Federation.CheckPeer(ctx, l.to.Provider); err != nil {
		// The reason of federation, under the code that a sender understands.
		e := fault.From(err)
		return fault.Wrap(e.Cause, fault.ExternalProvider, "%s is with the provider %s. %s", l.to, l.to.Provider,
			e.Message).About("to")
	}
	l.routeToServer(federation.Target(l.to.Provider), l.to.String())
	return nil
}

// resolveOnMesh finds the host of the mesh that has a recipient who is not on this one. notHere is
// the answer if nobody has it. While that cannot be found out the result is unknown, which is an error of its own
// (MSG-88). No host is asked about a workspace that is not open to the sender's.
func (m *Mail) resolveOnMesh(ctx context.Context, l *letter, notHere error) error {
	to := m.Domains.Home(l.to)
	reached, err := m.core.Roster.Reaches(ctx, l.sender.Workspace, m.Directory.Workspace(to.Tenant))
	if err != nil || !reached {
		return cmp.Or(err, notHere)
	}
	host, err := m.Homes.Locate(ctx, to)
	if err != nil {
		return err
	}
	if host == "" {
		return notHere
	}
	l.routeToServer(federation.TargetHost(host), to.String())
	return nil
}

// routeToServer addresses a message to the queue of another server. In place of the agent's id stands
// the name of that queue.
func (l *letter) routeToServer(to federation.Target, address string) {
	l.remote = to
	l.recipient = roster.Identity{ID: to.Queue(), Address: address}
}

// export is the call that carries the message to another provider or host, for as long as
// the message waits. Messages to one target go out one after another.
func (l *letter) export() deliver.Delivery {
	return deliver.Delivery{
		Workspace: l.workspace, Sender: l.remote.Sender(), Target: string(l.remote), Payload: []byte(l.meta.Envelope.ID),
		OrderKey:    string(l.remote),
		GiveUpAfter: TTL, Actor: l.sender.Actor(), Trace: trace(l.meta.Envelope.ThreadID),
	}
}

// carrier is the outbox's sender for messages to other providers and hosts.
type carrier struct{ *Mail }

// Send makes one call with the message, unless it has left the queue.
func (s carrier) Send(ctx context.Context, a deliver.Attempt) deliver.Result {
	to := federation.Target(a.Target)
	p, err := s.inQueueOf(ctx, to.Queue(), string(a.Payload))
	if err != nil {
		return deliver.Result{Class: "internal", Text: fault.From(err).Message}
	}
	// Acknowledged, expired or rejected since it was queued: there is nothing to send.
	if p == nil {
		return deliver.Result{Verdict: deliver.Succeeded, Text: "The message has left the queue."}
	}
	reply, failed := s.Federation.Send(ctx, to, &federation.Parcel{
		Message: p.Message,
		// The other provider may have pinned the key before the last rotation (MSG-82).
		Replaces:  s.Directory.Replaced(ctx, p.Envelope.From, p.SenderKey),
		Rotations: s.Directory.RotationsTo(ctx, p.Envelope.From, p.SenderKey),
		// The URLs are in the payload, if the sender wants the other host to have them.
		Files: withoutURLs(p.Security.Attachments),
	})
	if failed != nil {
		return *failed
	}
	return s.recordReply(ctx, a, p, reply)
}

// withoutURLs are attachments as another host of ours gets them.
func withoutURLs(files []amp.Attachment) []amp.Attachment {
	out := slices.Clone(files)
	for i := range out {
		out[i].URL = ""
	}
	return out
}

// recordReply turns an answer into the end of the message or a further attempt (MSG-83). If the
// end cannot be recorded, the attempt counts as failed: the repetition is answered with
// duplicate_message, which is a success.
func (s carrier) recordReply(ctx context.Context, a deliver.Attempt, p *Pending,
	reply federation.Reply,
) deliver.Result {
	to, status := federation.Target(a.Target), reply.Status
	r := deliver.Result{
		Status: status, Class: "status",
		Text: fmt.Sprintf("%s answered %d: %.300s", a.Target, status, reply.Reason()),
	}
	// The end of the message is an entry of its own; the outbox records the end of the delivery.
	end := func(kind string, held bool, note string) error {
		return s.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
			tx.Append(ledger.Event{
				Workspace: a.Workspace, Kind: kind, Actor: "system", Subject: p.ID, Trace: trace(p.Envelope.ThreadID),
				Body: transition{Seq: p.seq, Agent: to.Queue(), Place: p.place, Via: methodFor(to), Held: held, Note: note},
			})
			return nil
		})
	}
	switch taken, held := reply.Taken(); {
	case taken: // also if it is held: it is theirs now
		if end(kindAcked, held, "") != nil {
			return deliver.Result{Class: "internal", Text: "The provider has the message, and that could not be recorded."}
		}
		return deliver.Result{Verdict: deliver.Succeeded, Status: status}
	case isFinalRefusal(status):
		if end(kindFailed, false, r.Text) != nil {
			return deliver.Result{Class: "internal", Text: "The provider refuses the message, and that could not be recorded."}
		}
		r.Verdict = deliver.Hopeless
	}
	return r
}

// methodFor is the method by which a message reaches a target.
func methodFor(to federation.Target) string {
	if _, mesh := to.Host(); mesh {
		return ByMesh
	}
	return ByFederation
}

// isFinalRefusal reports whether a status is a refusal of the message itself, so that sending it again
// is no use. 408 and 429 are about the moment.
func isFinalRefusal(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// inQueueOf reads a message that is in the queue of an agent or a target, nil if it is not.
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

// Located is the answer to another host that looks for an agent: it is on this one.
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
