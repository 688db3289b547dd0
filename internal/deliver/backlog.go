package deliver

import (
	"context"
	"time"

	"signalbox/internal/store"
)

// Backlog is what waits for one target.
type Backlog struct {
	Target    string
	Waiting   int64
	Oldest    time.Time
	LastError string     // of the delivery that is tried, "" if none has failed
	FailedAt  *time.Time // when that try began
}

// Backlogs are the targets of some kinds of senders that deliveries wait for, by target.
func (o *Outbox) Backlogs(ctx context.Context, senders ...string) (map[string]Backlog, error) {
	args := make([]any, len(senders))
	for i, s := range senders {
		args[i] = s
	}
	all := map[string]Backlog{}
	err := store.Each(o.db.Reading(ctx), func(scan store.Scan) error {
		var b Backlog
		var oldest, since int64
		if err := scan(&b.Target, &b.Waiting, &oldest, &b.LastError, &since); err != nil {
			return err
		}
		b.Oldest, b.FailedAt = time.UnixMicro(oldest).UTC(), store.Moment(since)
		all[b.Target] = b
		return nil
	}, "SELECT target, count(*), MIN(queued_at), MAX(last_error), MAX(since) FROM delivery WHERE status = 'pending' AND "+
		"status <> 'delivered' AND sender IN ("+store.Marks(1, len(senders))+") GROUP BY target", args...)
	return all, err
}
