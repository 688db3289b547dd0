package deliver

import (
	"context"
	"errors"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// outcome is the result of a try, on its way into the ledger. reply has room for one value and always
// gets one.
type outcome struct {
	id, workspace, trace string
	kind                 string
	body                 tried
	reply                chan recording
}

// recording is what happened to an outcome.
type recording int

const (
	written    recording = iota
	superseded           // dropped: the delivery has ended, or others have tried it since
	lost                 // not written: the delivery will be sent again
)

// maxOutcomes is how many outcomes one write holds.
const maxOutcomes = 4 * chunkSize

// recordLoop writes outcomes until the channel is closed. It takes all that are waiting into one
// write, so that many lanes cost one commit.
func (r *runner) recordLoop() {
	for first := range r.outcomes {
		batch := []*outcome{first}
		for len(batch) < maxOutcomes && len(r.outcomes) > 0 {
			// Does not block: this is the only reader. A closed channel still yields what is in it.
			next, ok := <-r.outcomes
			if !ok {
				break
			}
			batch = append(batch, next)
		}
		r.recordAll(batch)
	}
}

// recordAll writes a batch and answers every outcome in it.
func (r *runner) recordAll(batch []*outcome) {
	became, err := r.persist(batch)
	if err == nil {
		for i, o := range batch {
			o.reply <- became[i]
		}
		return
	}
	if len(batch) > 1 && !passing(err) {
		// One of them cannot be written at all: try them one by one, so that only it is lost.
		for _, o := range batch {
			r.recordAll([]*outcome{o})
		}
		return
	}
	r.log.Error("delivery outcomes lost: write failed; the deliveries will be sent again", "count", len(batch),
		"error", err.Error())
	for _, o := range batch {
		o.reply <- lost
	}
}

// persist writes a batch, and tries again for as long as the database is away. Meanwhile the lanes
// wait, so that no receiver gets the same call over and over. After a stop there is one last try.
func (r *runner) persist(batch []*outcome) (became []recording, err error) {
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		// Read before the write, so that there is one full try after the stop.
		last := r.stopping.Err() != nil
		if became, err = r.write(batch); err == nil || !passing(err) || last {
			return became, err
		}
		if pause == 50*time.Millisecond {
			r.log.Warn("cannot record delivery outcomes; retrying", "error", err.Error())
		}
		ledger.Pause(r.stopping, nil, pause)
	}
}

// passing reports whether an error of the database or the ledger may be over soon.
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

// write appends the outcomes in one transaction, and says which were superseded. Attempt is counted
// here, since another runner may have recorded a try in the meantime.
func (r *runner) write(batch []*outcome) (became []recording, err error) {
	err = r.ledger.Write(context.WithoutCancel(r.stopping), func(tx *ledger.Tx) error {
		became = make([]recording, len(batch))
		attempts, err := pendingAttempts(tx, batch)
		if err != nil {
			return err
		}
		for i, o := range batch {
			made, pending := attempts[o.id]
			// A failure counts only if nobody has tried since: the later try knows more. A success
			// always counts, since the receiver has it.
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

// pendingAttempts reads how often the deliveries of a batch were tried; those that have ended are
// missing.
func pendingAttempts(tx *ledger.Tx, batch []*outcome) (map[string]int64, error) {
	ids := make([]string, len(batch))
	for i, o := range batch {
		ids[i] = o.id
	}
	attempts := map[string]int64{}
	for part := range chunks(ids) {
		// The status is checked here and not in SQL: PostgreSQL would rather scan the index of all
		// pending deliveries than look up these few by id.
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
