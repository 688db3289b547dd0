package attachment

import (
	"context"
	"errors"
	"time"

	"signalbox/internal/ledger"
	"signalbox/internal/store"
)

// Expire ends at most so many attachments whose time is over, and then removes their bytes. If
// the process ends between the two, SweepBlobs removes them.
func (t *Attachments) Expire(ctx context.Context, most int) (n int, err error) {
	var names []string
	err = t.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		names = nil // the function may run twice
		events, err := store.All(tx.Query, func(scan store.Scan) (ledger.Event, error) {
			e, name := ledger.Event{Kind: kindExpired, Actor: "system", Body: expired{}}, ""
			err := scan(&e.Subject, &e.Workspace, &name)
			names = append(names, name)
			return e, err
		}, "SELECT id, workspace, blob FROM mail_attachment WHERE status <> 'expired' AND expires_at <= $1 ORDER BY "+
			"expires_at LIMIT $2", tx.Now().UnixMicro(), most)
		for _, e := range events {
			tx.Append(e)
		}
		n = len(events)
		return err
	})
	if err != nil {
		return n, err
	}
	for _, name := range names {
		if name != "" {
			err = errors.Join(err, t.options.Blobs.Remove(ctx, name))
		}
	}
	return n, err
}

// SweepBlobs removes bytes that no attachment refers to: of uploads that were never recorded, and
// of attachments that ended just before a crash. Younger ones are left alone: their upload may be
// under way.
func (t *Attachments) SweepBlobs(ctx context.Context) error {
	names, err := t.options.Blobs.Before(ctx, time.Now().Add(-uploadTime))
	if err != nil {
		return err
	}
	for _, name := range names {
		var n int64
		if err := t.core.DB.QueryRow(ctx,
			"SELECT count(*) FROM mail_attachment WHERE blob = $1 AND status <> 'expired' AND status <> 'rejected'", []any{name},
			&n); err != nil {
			return err
		}
		if n == 0 {
			if err := t.options.Blobs.Remove(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}
