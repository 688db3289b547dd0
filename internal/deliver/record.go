package deliver

import (
	"context"
	"errors"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// outcome is what a try came to, on its way into the ledger.
type outcome struct {
	id, workspace, trace string
	kind                 string
	body                 tried
	reply                chan recording
}

// recording is what became of an outcome.
type recording int

const (
	written    recording = iota
	superseded           // the delivery has ended, or others have tried it since
	lost                 // could not be written; the delivery will be sent again
)

// maxOutcomes is how many outcomes share a write.
const maxOutcomes = 4 * chunkSize

// recordLoop writes outcomes, those of all lanes that are there together.
func (r *runner) recordLoop() {
	for first := range r.outcomes {
		batch := []*outcome{first}
		for len(batch) < maxOutcomes && len(r.outcomes) > 0 {
			next, ok := <-r.outcomes
			if !ok {
				break
			}
			batch = append(batch, next)
		}
		r.recordAll(batch)
	}
}

func (r *runner) recordAll(batch []*outcome) {
	became, err := r.persist(batch)
	if err == nil {
		for i, o := range batch {
			o.reply <- became[i]
		}
		return
	}
	if len(batch) > 1 && !passing(err) {
		// One of them cannot be written. Alone, it keeps nobody else back.
		for _, o := range batch {
			r.recordAll([]*outcome{o})
		}
		return
	}
	r.log.Error("cannot record what became of deliveries; they will be sent again", "count", len(batch), "error",
		err.Error())
	for _, o := range batch {
		o.reply <- lost
	}
}

// persist writes, and tries again as long as the database is away: meanwhile their
// lanes wait, and nobody is sent the same thing over and over.
func (r *runner) persist(batch []*outcome) (became []recording, err error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		last := r.stopping.Err() != nil
		if became, err = r.write(batch); err == nil || !passing(err) || last {
			return became, err
		}
		if pause == 50*time.Millisecond {
			r.log.Warn("cannot record what became of deliveries; will try again", "error", err.Error())
		}
		ledger.Pause(r.stopping, nil, pause)
	}
}

// passing errors are those of a database or ledger that may be better soon.
func passing(err error) bool {
	for _, code := range []fault.Code{
		fault.Overloaded, fault.StoreUnavailable, fault.StoreFull, fault.StoreReadOnly,
		fault.OutcomeUnknown, fault.LedgerMismatch, fault.Stopping, fault.Cancelled,
	} {
		if fault.Is(err, code) {
			return true
		}
	}
	return errors.Is(err, context.DeadlineExceeded)
}

func (r *runner) write(batch []*outcome) (became []recording, err error) {
	err = r.ledger.Write(context.WithoutCancel(r.stopping), func(tx *ledger.Tx) error {
		became = make([]recording, len(batch))
		attempts, err := pendingAttempts(tx, batch)
		if err != nil {
			return err
		}
		for i, o := range batch {
			made, pending := attempts[o.id]
			// A failure counts if nobody has tried since. A success counts whoever has.
			if !pending || o.kind != kindSucceeded && made != o.body.Attempt-1 {
				became[i] = superseded
				continue
			}
			body := o.body
			body.Attempt = made + 1
			tx.Append(ledger.Event{
				Workspace: o.workspace, Kind: o.kind, Actor: "system", Subject: o.id, Trace: o.trace,
				Body: body,
			})
		}
		return nil
	})
	return became, err
}

// pendingAttempts reads how often each delivery was tried, if it has not ended.
func pendingAttempts(tx *ledger.Tx, batch []*outcome) (map[string]int64, error) {
	ids := make([]string, len(batch))
	for i, o := range batch {
		ids[i] = o.id
	}
	attempts := map[string]int64{}
	for part := range chunks(ids) {
		// The status is looked at here and not there: PostgreSQL would rather read all
		// that are pending, by the index that has them, than these few by their id.
		err := store.Each(tx.Query, func(scan store.Scan) error {
			var id, status string
			var n int64
			err := scan(&id, &status, &n)
			if status == Pending {
				attempts[id] = n
			}
			return err
		}, "SELECT id, status, attempts FROM delivery WHERE id IN ("+store.Marks(1, len(part))+")", part...)
		if err != nil {
			return nil, err
		}
	}
	return attempts, nil
}
