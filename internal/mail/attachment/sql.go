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
		Blob   string `json:"blob"` // the name of the bytes
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	scanned struct {
		Status    string `json:"status"`
		Note      string `json:"note,omitzero"`
		ExpiresAt int64  `json:"expires_at"` // microseconds
	}
	// expired says nothing: seq is 0, and there because bodies keep their form.
	expired struct {
		Seq int64 `json:"seq"`
	}
)

// Tables are those of attachments. Package mail makes them, with its own.
func Tables() []ledger.Table { return ledger.Tables("mail_attachment (id)") }

// Apply is what entries do to them. Bind is what a message does.
func Apply() map[string]ledger.Apply {
	return map[string]ledger.Apply{
		kindAnnounced: ledger.ApplyBody(applyAnnounced), kindUploaded: ledger.ApplyBody(applyUploaded),
		kindScanned: ledger.ApplyBody(applyScanned), kindExpired: applyExpired,
	}
}

func applyAnnounced(tx *store.Tx, e *ledger.Entry, b *announced) {
	tx.Exec(`INSERT INTO mail_attachment (id, workspace, agent, filename, content_type, size, digest, status, note, blob, message, uploaded_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'announced', '', '', '', 0, $8)`, e.Subject, e.Workspace, b.Agent, b.Filename,
		b.ContentType, b.Size, b.Digest, b.ExpiresAt)
}

func applyUploaded(tx *store.Tx, e *ledger.Entry, b *uploaded) {
	tx.Exec("UPDATE mail_attachment SET status = 'uploaded', blob = $2, uploaded_at = $3 WHERE id = $1", e.Subject, b.Blob,
		e.At.UnixMicro())
}

func applyScanned(tx *store.Tx, e *ledger.Entry, b *scanned) {
	tx.Exec("UPDATE mail_attachment SET status = $2, note = $3, expires_at = $4 WHERE id = $1", e.Subject, b.Status,
		b.Note, b.ExpiresAt)
}

func applyExpired(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE mail_attachment SET status = 'expired' WHERE id = $1", e.Subject)
	return nil
}

// Bind gives attachments to the message that has them, until a time in microseconds.
func Bind(tx *store.Tx, message string, ids []string, until int64) {
	for _, id := range ids {
		tx.Exec("UPDATE mail_attachment SET message = $2, expires_at = $3 WHERE id = $1", id, message, until)
	}
}

const columns = "id, workspace, agent, filename, content_type, size, digest, status, note, blob, message, " +
	"uploaded_at, expires_at"

// idForm is the form of ids that clients take.
var idForm = regexp.MustCompile(`^att[_-][0-9]+[_-][A-Za-z0-9]+$`)

// find reads an attachment, with a query inside or outside of a transaction.
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

func (t *Attachments) find(ctx context.Context, id string) (record, error) {
	return find(id, func(text string, args []any, dest ...any) error {
		return t.core.DB.QueryRow(ctx, text, args, dest...)
	})
}

// own reads an attachment that the agent has announced.
func (t *Attachments) own(ctx context.Context, who roster.Identity, id string) (record, error) {
	a, err := t.find(ctx, id)
	if err == nil && a.agent != who.ID {
		return a, notFound(id)
	}
	return a, err
}
