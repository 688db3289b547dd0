package attachment

import (
	"context"

	"signalbox/internal/store"
)

// Names are those of all attachments in the blob.Store whose upload is complete, for backups.
func Names(ctx context.Context, db *store.DB) ([]string, error) {
	return store.All(db.Reading(ctx), store.Text,
		"SELECT blob FROM mail_attachment WHERE blob <> '' AND status <> 'expired' ORDER BY blob")
}
