package harness

import (
	"context"
	"slices"
	"strings"
	"time"

	"signalbox/internal/harness/spool"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Moment is one line of a session's timeline: a step with its answer, a notification,
// or something that happened to a gate. Seq is the entry that holds it; an entry of
// notifications holds several moments.
type Moment struct {
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"` // of the entry
	Type    Type      `json:"type,omitempty"`
	Gate    string    `json:"gate,omitempty"`
	Rule    string    `json:"rule,omitempty"`
	Answer  wire.Raw  `json:"answer,omitzero"`
	Event   wire.Raw  `json:"event,omitzero"`
	Dropped int64     `json:"dropped,omitempty"`
	// Unsupervised is set if the client answered by itself, while it could not ask.
	Unsupervised *spool.Shown `json:"unsupervised,omitempty"`
}

// readTimeline reads a page of what happened in a session, newest first.
func (h *Harness) readTimeline(ctx context.Context, s *Session, before int64, limit int) (all []Moment, next string,
	err error,
) {
	all = []Moment{}
	last, more, err := h.core.Ledger.WalkBack(ctx, ledger.Query{Trace: traceOf(s.AgentID, s.ID), UpTo: before - 1, Limit: limit},
		maxTimeline, func(e *ledger.Entry) error {
			moments, err := momentsOf(e)
			all = append(all, moments...)
			return err
		})
	if more {
		next = wire.SeqCursor(last)
	}
	return all, next, err
}

// maxTimeline is how many bytes of bodies one page of a timeline reads. A page may
// therefore be shorter than its limit; next says whether there is more.
const maxTimeline = 8 << 20

// momentsOf are the moments that an entry holds, newest first. An erased entry is one
// moment without content: that something happened stays visible.
func momentsOf(e *ledger.Entry) ([]Moment, error) {
	m := Moment{Seq: e.Seq, At: e.At, Kind: e.Kind}
	switch {
	case e.Body == nil: // it was erased
	case e.Kind == kindNoted || e.Kind == kindReported:
		var b notes
		if err := e.Decode(&b); err != nil {
			return nil, err
		}
		out := make([]Moment, 0, len(b.Notes))
		for _, n := range slices.Backward(b.Notes) {
			out = append(out, Moment{
				Seq: e.Seq, At: time.UnixMicro(n.At).UTC(), Kind: e.Kind, Type: n.Type, Event: n.Event,
				Dropped: b.Dropped,
			})
			b.Dropped = 0
		}
		return out, nil
	case slices.Contains(stepKinds, e.Kind), e.Kind == kindSettled:
		var b struct {
			Type     Type     `json:"type"`
			Gate     string   `json:"gate"`
			Answer   wire.Raw `json:"answer"`
			Event    wire.Raw `json:"event"`
			Decision struct {
				Rule string `json:"rule"`
			} `json:"decision"`
		}
		if err := wire.UnmarshalPart(e.Body, &b); err != nil {
			return nil, err
		}
		m.Type, m.Gate, m.Rule, m.Answer, m.Event = b.Type, b.Gate, b.Decision.Rule, b.Answer, b.Event
	case e.Kind == spool.KindStep:
		var b spool.Unsupervised
		if err := e.Decode(&b); err != nil {
			return nil, err
		}
		m.Type, m.Event, m.Unsupervised = Type(b.Type), b.Event, b.Shown()
	case strings.HasPrefix(e.Kind, "gate."):
		m.Gate = e.Subject
	}
	return []Moment{m}, nil
}
