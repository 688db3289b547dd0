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

// Undelivered is how many deliveries of a kind of senders are in a state: pending, failing, which have been tried in
// vain, or dead, which were given up.
type Undelivered struct {
	Workspace, Sender, State string
	Deliveries               int64
	Oldest                   time.Time // when the oldest was queued
}

// Undelivered counts what is not delivered in a workspace, or in all for "".
func (o *Outbox) Undelivered(ctx context.Context, workspace string) ([]Undelivered, error) {
	var where store.Where
	where.And("status <> 'delivered' AND attempts >= %s", 0)
	where.Equal("workspace", workspace)
	return store.All(o.db.Reading(ctx), func(scan store.Scan) (q Undelivered, err error) {
		var oldest int64
		err = scan(&q.Workspace, &q.Sender, &q.State, &q.Deliveries, &oldest)
		q.Oldest = time.UnixMicro(oldest).UTC()
		return q, err
	}, "SELECT workspace, sender, CASE WHEN status = 'pending' AND tries > 0 THEN 'failing' ELSE status END, count(*), "+
		"min(queued_at) FROM delivery WHERE "+where.String()+" GROUP BY 1, 2, 3", where.Args()...)
}
