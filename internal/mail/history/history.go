// Package history tells what happened to a message, from the ledger alone: where it went, by which calls, and
// how it ended.
//
// It knows entries by their subjects and traces. It must not know queues, and decides nothing: who may read a
// history is for its caller to say.
package history

import (
	"cmp"
	"context"
	"slices"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Step is one thing that happened to a message: an entry about it, or about a call to the
// recipient's webhook or to another server.
type Step struct {
	Entry int64     `json:"entry"`
	Kind  string    `json:"kind"`
	At    time.Time `json:"at"`
	Actor string    `json:"actor"`
	Via   string    `json:"via,omitempty"`
	Note  string    `json:"note,omitempty"`
}

// Message is the message whose history is asked for: its id, the trace of its thread, and the entry in which
// it was accepted.
type Message struct {
	ID, Trace string
	Entry     int64
}

// Of is the history of a message: the entries about it, and those about the calls that
// carried it to a webhook or another server, in the order of the ledger.
func Of(ctx context.Context, l *ledger.Ledger, m Message) ([]Step, error) {
	// The message's own history is short; 1,000 is a limit against accidents.
	own, err := l.Entries(ctx, ledger.Query{Subject: m.ID, Limit: 1000})
	if err != nil {
		return nil, err
	}
	calls, err := calls(ctx, l, m)
	if err != nil {
		return nil, err
	}
	steps := []Step{}
	// Bodies of different kinds share the members via, note and text; the rest of them is skipped.
	for _, e := range append(own, calls...) {
		step := Step{Entry: e.Seq, Kind: e.Kind, At: e.At, Actor: e.Actor}
		if e.Seq != m.Entry && e.Body != nil {
			var b struct {
				Via  string `json:"via"`
				Note string `json:"note"`
				Text string `json:"text"`
			}
			if err := wire.UnmarshalPart(e.Body, &b); err != nil {
				return nil, err
			}
			step.Via, step.Note = b.Via, b.Note
			if step.Note == "" && e.Kind != "delivery.queued" {
				step.Note = b.Text
			}
		}
		steps = append(steps, step)
	}
	slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Entry, b.Entry) })
	return steps, nil
}

// calls reads the entries of the deliveries that carried a message. They share the trace of the
// thread; the payload of a delivery is the id of its message.
func calls(ctx context.Context, l *ledger.Ledger, m Message) ([]ledger.Entry, error) {
	queued, err := l.Entries(ctx, ledger.Query{
		After: m.Entry, Trace: m.Trace,
		Kinds: []string{"delivery.queued"}, Limit: 1000,
	})
	if err != nil {
		return nil, err
	}
	var all []ledger.Entry
	for _, e := range queued {
		var b struct {
			Text string `json:"text"`
		}
		if err := wire.UnmarshalPart(e.Body, &b); err != nil || b.Text != m.ID {
			continue
		}
		// Every try of the delivery is an entry with the delivery as its subject.
		of, err := l.Entries(ctx, ledger.Query{Subject: e.Subject, Limit: 100})
		if err != nil {
			return nil, err
		}
		all = append(all, of...)
	}
	return all, nil
}
