// Package sent tells the sender of a message what became of it: in the answer to the sending, to a repetition of it, to a
// question later on, and in a frame to its sockets. All of them say the same words.
//
// It reads the table of messages and the entries about one, and writes nothing.
package sent

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/hub"
	"signalbox/internal/protocol"
	"signalbox/internal/wire"
)

// The states of a message. It begins as Queued or Held. Those from Acknowledged on are final; Delivered is
// not, since a message that was written to a socket stays in the queue until it is acknowledged.
const (
	Queued       = "queued"
	Delivered    = "delivered"    // written to a socket
	Held         = "quarantined"  // until a person decides
	Acknowledged = "acknowledged" // the recipient has it
	HeldAway     = "held"         // another provider or host has it, and holds it for a person
	Rejected     = "rejected"     // by a person, or by expiry of the gate
	Expired      = "expired"
	Failed       = "failed"        // another provider refuses it
	Undelivered  = "undeliverable" // the recipient left or was removed
)

// States are all of them, in the order of a message's life, since the API lists them to people.
var States = []string{Queued, Delivered, Held, Acknowledged, HeldAway, Rejected, Expired, Failed, Undelivered}

// ends are the states in which a message does not arrive any more, with what is said if nobody has said why.
var ends = map[string]string{
	Rejected: "It was held, and rejected.", Expired: "Its time was over before the recipient fetched it.",
	Failed: "It was refused.", Undelivered: "The recipient is gone.",
}

// Answer is the answer to a sender. The message is stored, whatever Status says: delivered means
// that a push or a call succeeded within the sender's wait, queued that it did not yet.
type Answer struct {
	ID          string `json:"id"`
	Status      string `json:"status"` // delivered, queued, quarantined, failed, rejected, expired or undeliverable
	Method      string `json:"method"` // websocket, webhook, relay, mesh or federation
	DeliveredAt string `json:"delivered_at,omitzero"`
	QueuedAt    string `json:"queued_at,omitzero"`
	RemoteHost  string `json:"remote_host,omitzero"` // the host of the mesh that it goes to
	// Error is why a message does not arrive any more, and Note why it has not arrived yet.
	Error string `json:"error,omitzero"`
	Note  string `json:"note,omitzero"`
	// QuarantineID and GateID name the same held message, to the protocol and to operators. A message that another
	// host or provider holds has none here.
	QuarantineID string `json:"quarantine_id,omitzero"`
	GateID       string `json:"gate_id,omitzero"`
	// Warnings are attachment_suspicious and injection_ with a category. They are no errors.
	Warnings []string `json:"warnings,omitempty"`
}

// heldAway is the note about a message that another server holds.
const heldAway = "The recipient's server has it, and holds it for a person who decides there."

// Conclude puts the outcome of a delivery into the answer; without one the message is queued. called says that a webhook
// is called, and not another server.
func (a *Answer) Conclude(o hub.Outcome, called bool, now string) {
	switch {
	case o.Held:
		a.Status, a.Method, a.Note = Held, o.Method, heldAway
	case o.Method != "":
		a.Status, a.Method, a.QueuedAt, a.DeliveredAt = Delivered, o.Method, "", now
	// Another provider or host refused it within the wait: the sender learns it at once.
	case o.Final:
		a.Status, a.QueuedAt, a.Error = Failed, "", cmp.Or(o.Reason, ends[Failed])
	case o.Reason != "" && called:
		a.Note = "The recipient's webhook does not take the message: " + o.Reason + ". It waits in the queue."
	case o.Reason != "":
		a.Note = "The recipient's server does not take the message: " + o.Reason + ". It is sent again."
	}
}

// row is a message as its sender is told of it.
type row struct {
	Answer
	at, delivered int64 // microseconds
	request, to   string
}

// read reads a message of an agent by a condition on the table of messages; found is false if there is none.
func read(ctx context.Context, core *protocol.Core, agent, where, value string) (r row, found bool, err error) {
	err = core.DB.QueryRow(ctx, "SELECT id, status, method, at, delivered_at, request, quarantine, gate, recipient_address "+
		"FROM mail_message WHERE sender = $1 AND "+where, []any{agent, value},
		&r.ID, &r.Status, &r.Method, &r.at, &r.delivered, &r.request, &r.QuarantineID, &r.GateID, &r.to)
	if errors.Is(err, sql.ErrNoRows) {
		return r, false, nil
	}
	return r, err == nil, err
}

// tell completes the answer about a message as it is now.
func (r *row) tell(ctx context.Context, core *protocol.Core) (*Answer, error) {
	reason, ended := ends[r.Status]
	switch {
	case ended:
		said, err := why(ctx, core, r.ID)
		if err != nil {
			return nil, err
		}
		r.Error = cmp.Or(said, reason)
	case r.Status == HeldAway:
		r.Status, r.Note, r.QueuedAt = Held, heldAway, amp.Stamp(time.UnixMicro(r.at))
	case r.delivered > 0:
		r.Status, r.DeliveredAt = Delivered, amp.Stamp(time.UnixMicro(r.delivered))
	case r.Status == Acknowledged:
		r.Status = Delivered
	default: // queued, or held, whose gate the sender gets again
		r.QueuedAt = amp.Stamp(time.UnixMicro(r.at))
	}
	return &r.Answer, nil
}

// ending are the kinds of entries that end a message without its arrival.
var ending = []string{"message.failed", "message.rejected", "message.expired"}

// why is what the entry says that has ended a message, "" if it says nothing.
func why(ctx context.Context, core *protocol.Core, id string) (string, error) {
	all, err := core.Ledger.Entries(ctx, ledger.Query{Subject: id, Kinds: ending, Newest: true, Limit: 1})
	if err != nil || len(all) == 0 || all[0].Body == nil {
		return "", err
	}
	var b struct {
		Note string `json:"note"`
	}
	err = wire.UnmarshalPart(all[0].Body, &b)
	return b.Note, err
}

// Repeated answers a request whose idempotency key was used before, nil if it was not (MSG-35).
// The answer is made from the message as it is now: what was queued then may be delivered, or have failed.
func Repeated(ctx context.Context, core *protocol.Core, agent string, o *amp.Draft) (*Answer, error) {
	r, found, err := read(ctx, core, agent, "idem = $2 AND idem <> ''", o.Idem)
	if err != nil || !found {
		return nil, err
	}
	// The same key with another body is a client's mistake: neither message can be meant.
	if r.request != o.Request {
		return nil, fault.New(fault.DuplicateIdempotencyKey,
			"The idempotency key %q was used for another request, which stays as it is. Use a new one for a new message.",
			o.Idem).About("idempotency_key")
	}
	return r.tell(ctx, core)
}

// Of is what became of a message that an agent has sent (MSG-114). Those of others are not found.
func Of(ctx context.Context, core *protocol.Core, agent, id string) (Answer, error) {
	notFound := fault.New(fault.NotFound, "There is no message %.128q of yours. The answer to POST /v1/route has its id.", id)
	if agent == "" || !amp.IDForm.MatchString(id) {
		return Answer{}, notFound
	}
	r, found, err := read(ctx, core, agent, "id = $2", id)
	if err != nil {
		return Answer{}, err
	}
	if !found {
		return Answer{}, notFound
	}
	told, err := r.tell(ctx, core)
	if err != nil {
		return Answer{}, err
	}
	return *told, nil
}

// Ending is the frame for the sender of a message that ends by an entry without its arrival.
type Ending struct {
	Sender string // the id of the agent, "" if it is none of ours or the entry is about no such end
	Data   map[string]any
}

// EndingOf reads who sent the message that an entry ends.
func EndingOf(ctx context.Context, core *protocol.Core, e *ledger.Entry) (out Ending, err error) {
	if !slices.Contains(ending, e.Kind) {
		return out, nil
	}
	var to, status string
	err = core.DB.QueryRow(ctx, "SELECT sender, recipient_address, status FROM mail_message WHERE id = $1", []any{e.Subject},
		&out.Sender, &to, &status)
	if errors.Is(err, sql.ErrNoRows) {
		return Ending{}, nil
	}
	if err != nil {
		return Ending{}, err
	}
	reason, err := why(ctx, core, e.Subject)
	out.Data = map[string]any{
		"id": e.Subject, "to": to, "status": status, "error": cmp.Or(reason, ends[status]), "at": amp.Stamp(e.At),
	}
	return out, err
}
