package attachment

import (
	"context"
	"database/sql"
	"errors"
	"regexp"

	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// The kinds of entries about an attachment, whose id is the subject.
const (
	kindAnnounced = "attachment.announced"
	kindUploaded  = "attachment.uploaded"
	kindScanned   = "attachment.scanned"
	kindExpired   = "attachment.expired"
)

// The bodies of those entries. Times are microseconds.
type (
	announced struct {
		Agent       string `json:"agent"`
		Filename    string `json:"filename"`
		ContentType string `json:"content_type"`
		Size        int64  `json:"size"`
		Digest      string `json:"digest"`     // sha256: and hex
		ExpiresAt   int64  `json:"expires_at"` // microseconds
	}
	uploaded struct {
		Blob   string `json:"blob"` // the name in the blob.Store
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	scanned struct {
		Status    string `json:"status"`
		Note      string `json:"note,omitzero"`
		ExpiresAt int64  `json:"expires_at"` // microseconds
	}
	// expired has no content. Seq is always 0; it stays because stored bodies have it.
	expired struct {
		Seq int64 `json:"seq"`
	}
)

// Tables are the tables of attachments, which the migrations of package mail make.
func Tables() []ledger.Table {
	return ledger.Tables("mail_attachment (id)", "mail_attachment_away (id, message)")
}

// Apply is how entries change the table. A message changes it through Bind.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{
		kindAnnounced: ledger.ApplyBody(applyAnnounced), kindUploaded: ledger.ApplyBody(applyUploaded),
		kindScanned: ledger.ApplyBody(applyScanned), kindExpired: applyExpired,
	}
}

// applyAnnounced adds the row; everything else updates it.
func applyAnnounced(tx *store.Tx, e *ledger.Entry, b *announced) {
	tx.Exec(`INSERT INTO mail_attachment (id, workspace, agent, filename, content_type, size, digest, status, note,
blob, message, uploaded_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'announced', '', '', '', 0, $8)`, e.Subject, e.Workspace, b.Agent, b.Filename,
		b.ContentType, b.Size, b.Digest, b.ExpiresAt)
}

// applyUploaded notes where the bytes are. The time for the upload goes on until they are scanned.
func applyUploaded(tx *store.Tx, e *ledger.Entry, b *uploaded) {
	tx.Exec("UPDATE mail_attachment SET status = 'uploaded', blob = $2, uploaded_at = $3 WHERE id = $1", e.Subject, b.Blob,
		e.At.UnixMicro())
}

// applyScanned sets the verdict, and the shorter time of a file that is not sent yet.
func applyScanned(tx *store.Tx, e *ledger.Entry, b *scanned) {
	tx.Exec("UPDATE mail_attachment SET status = $2, note = $3, expires_at = $4 WHERE id = $1", e.Subject, b.Status,
		b.Note, b.ExpiresAt)
}

// applyExpired keeps the row: the id must not be used again, and its message may still name it.
func applyExpired(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE mail_attachment SET status = 'expired' WHERE id = $1", e.Subject)
	return nil
}

// Bind gives attachments to the message that claimed them, until a time in microseconds. Package
// mail calls it from the apply function of message.routed.
func Bind(tx *store.Tx, message string, ids []string, until int64) {
	for _, id := range ids {
		tx.Exec("UPDATE mail_attachment SET message = $2, expires_at = $3 WHERE id = $1", id, message, until)
	}
}

// columns are those that find reads, in its order.
const columns = "id, workspace, agent, filename, content_type, size, digest, status, note, blob, message, " +
	"uploaded_at, expires_at"

// idForm is the form of ids that the bash clients accept (MSG-69).
var idForm = regexp.MustCompile(`^att[_-][0-9]+[_-][A-Za-z0-9]+$`)

// find reads an attachment with the query of a transaction or of the database.
func find(id string, query func(text string, args []any, dest ...any) error) (a record, err error) {
	if !idForm.MatchString(id) {
		return a, notFound(id)
	}
	err = query("SELECT "+columns+" FROM mail_attachment WHERE id = $1", []any{id},
		&a.id, &a.workspace, &a.agent, &a.filename, &a.contentType, &a.size, &a.digest, &a.status, &a.note, &a.blob,
		&a.message, &a.uploadedAt, &a.expiresAt)
	if errors.Is(err, sql.ErrNoRows) {
		return a, notFound(id)
	}
	return a, err
}

// find reads an attachment outside a transaction.
func (t *Attachments) find(ctx context.Context, id string) (record, error) {
	return find(id, func(text string, args []any, dest ...any) error {
		return t.core.DB.QueryRow(ctx, text, args, dest...)
	})
}

// findOwn reads an attachment that the agent announced. Those of others are not found.
func (t *Attachments) findOwn(ctx context.Context, who roster.Identity, id string) (record, error) {
	a, err := t.find(ctx, id)
	if err == nil && a.agent != who.ID {
		return a, notFound(id)
	}
	return a, err
}
