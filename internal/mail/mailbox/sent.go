package mailbox

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"signalbox/internal/fault"
)

// Undelivered is the code of an error about a message that was accepted and does not arrive.
const Undelivered fault.Code = "undelivered"

// The states of a sent message in which it is on its way, and held, when a person has to decide.
const (
	queued    = "queued"
	delivered = "delivered"
	held      = "quarantined"
)

// shownHeld is what held is called here.
const shownHeld = "held"

// ended are the states in which nobody tries again (MSG-114).
var ended = map[string]bool{"failed": true, "rejected": true, "expired": true, "undeliverable": true}

// failure is why a message does not arrive, nil if it may.
func failure(state, id, to, reason string) error {
	if !ended[state] {
		return nil
	}
	verb := map[string]string{"rejected": "was rejected", "expired": "has expired"}[state]
	return fault.New(Undelivered, "%s to %s %s: %s", id, Plain(to), cmp.Or(verb, "failed"),
		cmp.Or(reason, "the provider says no reason."))
}

// Failure is why a message will not arrive, nil if it may.
func (r *Receipt) Failure() error { return failure(r.Status, r.ID, r.To, r.Error) }

// Held reports whether a person has to decide before the message is delivered.
func (r *Receipt) Held() bool { return r.Status == held }

// Failure is why a message in Sent does not arrive, nil if it may, as far as its provider has said.
func (m *Message) Failure() error { return failure(m.State, m.Envelope.ID, m.Envelope.To, m.Error) }

// onItsWay reports whether the provider may know more by now. What a socket got may still expire unread.
func (m *Message) onItsWay() bool {
	return m.State == queued || m.State == shownHeld || m.State == "" ||
		m.State == delivered && m.file.part("local").text("delivery_method") == "websocket"
}

// maxAsked is how many messages one Refresh asks about, the newest: providers limit calls.
const maxAsked = 30

// Refresh asks the providers what became of messages in Sent that are on their way, and keeps what they say. It returns
// those of another state than before. A provider that fails is asked once, and its error returned beside the others'.
func (b *Box) Refresh(ctx context.Context, messages []Message) (changed []Message, failed []error) {
	silent, asked := map[string]bool{}, 0
	for i := range messages {
		m := &messages[i]
		if !m.onItsWay() || asked == maxAsked {
			continue
		}
		r := b.sentWith(m)
		if r == nil || silent[r.Provider] {
			continue
		}
		asked++
		var now Receipt
		err := newCaller(r.apiKey).call(ctx, http.MethodGet, r.APIURL+"/messages/"+m.Envelope.ID, nil, &now)
		switch {
		case isUnknown(err): // not every provider has the call
			silent[r.Provider] = !fault.Is(err, fault.NotFound)
			continue
		case err == nil:
			var is bool
			if is, err = b.became(m, now); is {
				changed = append(changed, *m)
			}
		}
		if err != nil {
			silent[r.Provider] = true
			failed = append(failed, err)
		}
	}
	return changed, failed
}

// sentWith is the registration that a message was sent with, nil if the agent has given up the address.
func (b *Box) sentWith(m *Message) *Registration {
	for i := range b.Registrations {
		r := &b.Registrations[i]
		from, err := r.domains().Parse(m.Envelope.From)
		if err == nil && r.domains().Home(from).String() == strings.ToLower(r.Address) {
			return r
		}
	}
	return nil
}

// became stores the state of a sent message, and reports whether it is another one than before.
func (b *Box) became(m *Message, now Receipt) (changed bool, err error) {
	state, reason := oneLine(now.Status, 32), oneLine(cmp.Or(now.Error, now.Note), 600)
	shown := strings.Replace(state, held, shownHeld, 1)
	if state == "" || shown == m.State && reason == m.Error {
		return false, nil
	}
	changed = shown != m.State
	return changed, b.withLock(func() error {
		if _, err := os.Stat(m.path); errors.Is(err, fs.ErrNotExist) {
			return nil // removed in the meantime: do not write it again
		}
		local, metadata := m.file.part("local"), m.file.part("metadata")
		local.set(state, "status")
		local.set(reason, "error")
		if method := oneLine(now.Method, 32); method != "" {
			local.set(method, "delivery_method")
		}
		metadata.set(state, "status")
		m.file.set(local, "local")
		m.file.set(metadata, "metadata")
		m.State, m.Error = shown, reason
		return writeJSON(m.path, m.file, 0o600)
	})
}
