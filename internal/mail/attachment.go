package mail

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"io"
	"mime"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// The limits of attachments.
const (
	maxAttachment  = 25 << 20
	maxAttached    = 100 << 20 // of one message
	maxAttachments = 10
	uploadTime     = time.Hour          // to upload what was announced
	unroutedTime   = 2 * time.Hour      // to send what was confirmed
	routedTime     = 7 * 24 * time.Hour // to fetch what was sent
)

// The states of an attachment, beside what the scan says.
const (
	attAnnounced = "announced"
	attUploaded  = "uploaded"
	attExpired   = "expired"
)

// The kinds of entries about an attachment, whose id is the subject.
const (
	kindAnnounced  = "attachment.announced"
	kindUploaded   = "attachment.uploaded"
	kindScanned    = "attachment.scanned"
	kindAttExpired = "attachment.expired"
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
	uploadedFile struct {
		Blob   string `json:"blob"` // the name of the bytes
		Size   int64  `json:"size"`
		SHA256 string `json:"sha256"`
	}
	scanned struct {
		Status    string `json:"status"`
		Note      string `json:"note,omitzero"`
		ExpiresAt int64  `json:"expires_at"` // microseconds
	}
)

func applyAnnounced(tx *store.Tx, e *ledger.Entry) error {
	var b announced
	if err := e.Decode(&b); err != nil {
		return err
	}
	tx.Exec(`INSERT INTO mail_attachment (id, workspace, agent, filename, content_type, size, digest, status, note, blob, message, uploaded_at, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, 'announced', '', '', '', 0, $8)`, e.Subject, e.Workspace, b.Agent, b.Filename, b.ContentType, b.Size, b.Digest, b.ExpiresAt)
	return nil
}

func applyUploaded(tx *store.Tx, e *ledger.Entry) error {
	var b uploadedFile
	if err := e.Decode(&b); err != nil {
		return err
	}
	tx.Exec("UPDATE mail_attachment SET status = 'uploaded', blob = $2, uploaded_at = $3 WHERE id = $1", e.Subject, b.Blob, e.At.UnixMicro())
	return nil
}

func applyScanned(tx *store.Tx, e *ledger.Entry) error {
	var b scanned
	if err := e.Decode(&b); err != nil {
		return err
	}
	tx.Exec("UPDATE mail_attachment SET status = $2, note = $3, expires_at = $4 WHERE id = $1", e.Subject, b.Status, b.Note, b.ExpiresAt)
	return nil
}

func applyAttachmentExpired(tx *store.Tx, e *ledger.Entry) error {
	tx.Exec("UPDATE mail_attachment SET status = 'expired' WHERE id = $1", e.Subject)
	return nil
}

// attach binds attachments to the message that has them.
func attach(tx *store.Tx, id string, m *Meta) {
	for _, a := range m.Attachments {
		tx.Exec("UPDATE mail_attachment SET message = $2, expires_at = $3 WHERE id = $1", a, id, m.AttachedUntil)
	}
}

// attachment is one as it is stored.
type attachment struct {
	id, workspace, agent, filename, contentType, digest string
	size                                                int64
	status, note, blob, message                         string
	uploadedAt, expiresAt                               int64
}

const attachmentColumns = "id, workspace, agent, filename, content_type, size, digest, status, note, blob, message, uploaded_at, expires_at"

func scanAttachment(scan func(...any) error) (a attachment, err error) {
	err = scan(&a.id, &a.workspace, &a.agent, &a.filename, &a.contentType, &a.size, &a.digest, &a.status, &a.note, &a.blob, &a.message, &a.uploadedAt, &a.expiresAt)
	return a, err
}

// attachmentForm is the form of ids that clients take.
var attachmentForm = regexp.MustCompile(`^att[_-][0-9]+[_-][A-Za-z0-9]+$`)

func noAttachment(id string) *fault.Error {
	return fault.New(fault.AttachmentNotFound, "There is no attachment %.80q of yours. POST /v1/attachments/upload makes one.", id)
}

// findAttachment reads one, with a query inside or outside of a transaction.
func findAttachment(id string, query func(text string, args []any, dest ...any) error) (attachment, error) {
	if !attachmentForm.MatchString(id) {
		return attachment{}, noAttachment(id)
	}
	a, err := scanAttachment(func(dest ...any) error {
		return query("SELECT "+attachmentColumns+" FROM mail_attachment WHERE id = $1", []any{id}, dest...)
	})
	if errors.Is(err, sql.ErrNoRows) {
		return a, noAttachment(id)
	}
	return a, err
}

func (m *Mail) attachment(ctx context.Context, id string) (attachment, error) {
	return findAttachment(id, func(text string, args []any, dest ...any) error { return m.core.DB.QueryRow(ctx, text, args, dest...) })
}

// own reads an attachment that the agent has announced.
func (m *Mail) own(ctx context.Context, who roster.Identity, id string) (attachment, error) {
	a, err := m.attachment(ctx, id)
	if err == nil && a.agent != who.ID {
		return a, noAttachment(id)
	}
	return a, err
}

func (a *attachment) expired(now time.Time) error {
	if a.status == attExpired || a.expiresAt <= now.UnixMicro() {
		return fault.New(fault.AttachmentExpired, "The attachment %s is past its time. Upload it again.", a.id)
	}
	return nil
}

// scanStatus is the status in the protocol's words.
func (a *attachment) scanStatus() string {
	if a.status == attAnnounced || a.status == attUploaded {
		return "pending"
	}
	return a.status
}

// ticket proves that we have given out an address: for uploading or for downloading.
func (m *Mail) ticket(purpose, id string) string {
	h := hmac.New(sha256.New, m.core.Derive("signalbox mail attachment "+purpose))
	h.Write([]byte(id))
	return hex.EncodeToString(h.Sum(nil))
}

func (m *Mail) fileURL(id string) string {
	return amp.Endpoint(m.core.BaseURL) + "/attachments/" + id + "/file?token=" + m.ticket("download", id)
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// parseAnnouncement reads what a client wants to upload.
func parseAnnouncement(body []byte) (announced, error) {
	f, err := amp.ReadFields(body)
	if err != nil {
		return announced{}, err
	}
	a := announced{Filename: f.Required("filename", 255, "the name of the file, such as \"report.pdf\""), ContentType: f.Required("content_type", 127, "a media type such as \"application/pdf\"")}
	digest := f.Required("digest", 128, "\"sha256:\" and the 64 hex digits of the file's SHA-256")
	raw, there := f.Get("size")
	if !there {
		f.Missing("size", "how many bytes the file has")
	}
	if a.Size, err = strconv.ParseInt(string(raw), 10, 64); there && (err != nil || a.Size < 0) {
		f.Fail("size", "should be how many bytes the file has, and is %.40s.", raw)
	}
	if _, _, err := mime.ParseMediaType(a.ContentType); a.ContentType != "" && err != nil {
		f.Fail("content_type", "should be a media type such as \"application/pdf\", and is %.80q.", a.ContentType)
	}
	if f.Err != nil {
		return a, f.Err
	}
	if a.Filename, err = cleanFilename(a.Filename); err != nil {
		return a, err
	}
	if a.Size > maxAttachment {
		return a, fault.New(fault.AttachmentTooLarge, "The file has %d bytes; the most is %d.", a.Size, maxAttachment).About("size")
	}
	algorithm, hexDigits, _ := strings.Cut(digest, ":")
	if algorithm != "sha256" {
		return a, fault.New(fault.InvalidDigest, "The digest should be \"sha256:\" and 64 hex digits, and is %.80q.", digest).About("digest")
	}
	if !digestForm.MatchString(hexDigits) {
		return a, fault.New(fault.InvalidField, "The digest should be \"sha256:\" and 64 lower-case hex digits, and is %.80q.", digest).About("digest")
	}
	a.Digest = digest
	return a, nil
}

var deviceNames = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

// cleanFilename makes a name that every system takes for a file and nothing else.
func cleanFilename(name string) (string, error) {
	lower := strings.ToLower(name)
	if strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") || strings.Contains(lower, "%00") || strings.ContainsAny(name, "/\\") {
		return "", fault.New(fault.InvalidField, "A filename has no folders in it. It is %.80q.", name).About("filename")
	}
	clean := strings.Map(func(c rune) rune {
		if c < 0x80 && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("._-", c)) {
			return c
		}
		return '_'
	}, name)
	if clean = strings.Trim(clean, ". "); deviceNames.MatchString(clean) {
		clean = "_" + clean
	}
	if clean == "" {
		return "", fault.New(fault.InvalidField, "A filename has at least one letter or digit. It is %.80q.", name).About("filename")
	}
	return clean[:min(len(clean), 255)], nil
}

// announce makes a place for an attachment.
func (m *Mail) announce(ctx context.Context, who roster.Identity, body []byte) (string, announced, error) {
	a, err := parseAnnouncement(body)
	if err != nil {
		return "", a, err
	}
	id := amp.NewID("att", m.core.Now())
	a.Agent, a.ExpiresAt = who.ID, m.core.Now().Add(uploadTime).UnixMicro()
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: who.Workspace, Kind: kindAnnounced, Actor: who.Actor(), Subject: id, Body: a})
		return nil
	})
	return id, a, err
}

// Upload keeps the bytes of an attachment. They are on disk before anything says that
// they are there; those of an upload that is not recorded are swept.
func (m *Mail) Upload(ctx context.Context, id string, r io.Reader) error {
	a, err := m.attachment(ctx, id)
	if err != nil {
		return err
	}
	if err := a.expired(m.core.Now()); err != nil {
		return err
	}
	if a.status != attAnnounced {
		return uploadedAlready(id)
	}
	name := id + "-" + strings.ToLower(rand.Text()[:8])
	// A hundredth more than was announced is taken, and found out by the scan.
	kept, err := m.Blobs.Put(ctx, name, r, a.size+a.size/100)
	if errors.Is(err, blob.ErrTooLarge) {
		return fault.New(fault.AttachmentTooLarge, "The file is larger than the %d bytes that were announced.", a.size)
	}
	if err != nil {
		return err
	}
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		var status string
		if err := tx.QueryRow("SELECT status FROM mail_attachment WHERE id = $1", []any{id}, &status); err != nil {
			return err
		}
		if status != attAnnounced {
			return uploadedAlready(id)
		}
		tx.Append(ledger.Event{Workspace: a.workspace, Kind: kindUploaded, Actor: "system", Subject: id, Body: uploadedFile{name, kept.Size, kept.SHA256}})
		return nil
	})
	if fault.Is(err, fault.AttachmentUsed) {
		_ = m.Blobs.Remove(ctx, name) // of somebody who was second
	}
	return err
}

func uploadedAlready(id string) error {
	return fault.New(fault.AttachmentUsed, "The attachment %s was uploaded already. Ask for a new one with POST /v1/attachments/upload.", id)
}

// confirm scans what was uploaded. It may be asked again.
func (m *Mail) confirm(ctx context.Context, who roster.Identity, id string) (attachment, error) {
	a, err := m.own(ctx, who, id)
	if err != nil {
		return a, err
	}
	if err := a.expired(m.core.Now()); err != nil {
		return a, err
	}
	if a.status == attAnnounced {
		return a, fault.New(fault.AttachmentPending, "The attachment %s was not uploaded yet. PUT its bytes to the upload_url first.", id)
	}
	if a.status != attUploaded {
		return a, nil
	}
	b := scanned{ExpiresAt: m.core.Now().Add(unroutedTime).UnixMicro()}
	if b.Status, b.Note, err = m.look(ctx, a); err != nil {
		return a, err
	}
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: a.workspace, Kind: kindScanned, Actor: "system", Subject: id, Body: b})
		return nil
	})
	if err != nil {
		return a, err
	}
	if b.Status == inspect.Rejected {
		_ = m.Blobs.Remove(ctx, a.blob) // what stays is swept
	}
	return m.attachment(ctx, id)
}

// look reads the file and scans it.
func (m *Mail) look(ctx context.Context, a attachment) (status, note string, err error) {
	kept, err := m.Blobs.Get(ctx, a.blob)
	if err != nil {
		return "", "", err
	}
	file, err := blob.Local(kept)
	if err != nil {
		return "", "", err
	}
	defer func() { _ = file.Close() }()
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	switch {
	case err != nil:
		return "", "", err
	case size != a.size:
		return inspect.Rejected, "The file has " + strconv.FormatInt(size, 10) + " bytes, and " + strconv.FormatInt(a.size, 10) + " were announced.", nil
	case "sha256:"+hex.EncodeToString(sum.Sum(nil)) != a.digest:
		return inspect.Rejected, "The file is not the one whose digest was announced.", nil
	}
	if status, note, err = inspect.File(file, size, a.contentType); err != nil || status == inspect.Rejected || m.Clam == "" {
		return status, note, err
	}
	found, err := m.Clam.Scan(ctx, io.NewSectionReader(file, 0, size))
	switch {
	case err != nil:
		return "", "", fault.Wrap(err, fault.ScannerUnavailable, "The virus scanner does not scan the attachment %s now. Confirm it again later.", a.id)
	case found != "":
		return inspect.Rejected, "The virus scanner found " + found + ".", nil
	}
	return status, note, nil
}

// attached is an attachment as a message names it.
type attached struct {
	id, digest string
	size       int64
}

// readAttachments reads those of a payload that are ours to keep.
func readAttachments(payload []byte) ([]attached, error) {
	f, err := amp.ReadFields(payload)
	if err != nil {
		return nil, err
	}
	raw, ok := f.Get("attachments")
	if !ok {
		return nil, nil
	}
	var items []wire.Raw
	if err := wire.Unmarshal(raw, &items); err != nil {
		return nil, fault.New(fault.InvalidField, "The field \"payload.attachments\" should be a list of objects.").About("payload.attachments")
	}
	var list []attached
	for _, item := range items {
		one, err := amp.ReadFields(item)
		if err != nil {
			return nil, fault.New(fault.InvalidField, "The field \"payload.attachments\" should be a list of objects.").About("payload.attachments")
		}
		if one.Text("storage", 16) == "afp" {
			continue // kept elsewhere
		}
		one.Prefix = "payload.attachments."
		a := attached{id: one.Required("id", 128, "the attachment_id"), digest: one.Required("digest", 128, "the digest as it was announced")}
		size, there := one.Get("size")
		if !there {
			one.Missing("size", "the size as it was announced")
		}
		if a.size, err = strconv.ParseInt(string(size), 10, 64); there && (err != nil || a.size < 0) {
			one.Fail("size", "should be a whole number.")
		}
		if one.Err != nil {
			return nil, one.Err
		}
		list = append(list, a)
	}
	return list, nil
}

// checkAttachments settles which attachments a message has. The protocol has an order for
// what is wrong: how many, how large, then each: whose, expired, used, scanned, as announced.
func (m *Mail) checkAttachments(ctx context.Context, l *letter) error {
	if !l.attached {
		return nil
	}
	list, err := readAttachments(l.payload)
	if err != nil {
		return err
	}
	if len(list) > maxAttachments {
		return fault.New(fault.TooManyAttachments, "The message has %d attachments; the most is %d.", len(list), maxAttachments).About("payload.attachments")
	}
	total := int64(0)
	for _, a := range list {
		if total += a.size; total > maxAttached {
			return fault.New(fault.AttachmentTooLarge, "The attachments have more than %d bytes together.", maxAttached).About("payload.attachments")
		}
	}
	for _, a := range list {
		found, err := m.own(ctx, l.sender, a.id)
		if err == nil {
			err = found.usable(m.core.Now(), a)
		}
		if err != nil {
			return err
		}
		if slices.Contains(l.meta.Attachments, a.id) {
			return uploadedTwice(a.id)
		}
		l.meta.Attachments = append(l.meta.Attachments, a.id)
		if found.status == inspect.Suspicious && !slices.Contains(l.warnings, "attachment_suspicious") {
			l.warnings = append(l.warnings, "attachment_suspicious")
		}
	}
	if len(l.meta.Attachments) > 0 {
		l.meta.AttachedUntil = m.core.Now().Add(routedTime).UnixMicro()
	}
	return nil
}

func uploadedTwice(id string) error {
	return fault.New(fault.AttachmentUsed, "The attachment %s belongs to another message, or stands there twice. Upload a new copy.", id).About("payload.attachments")
}

// usable says why an attachment cannot be sent, nil when it can.
func (a *attachment) usable(now time.Time, named attached) error {
	if err := a.expired(now); err != nil {
		return err
	}
	switch {
	case a.message != "":
		return uploadedTwice(a.id)
	case a.scanStatus() == "pending":
		return fault.New(fault.AttachmentPending, "The attachment %s is not scanned yet. Confirm it with POST /v1/attachments/%s/confirm, and send the message when its scan_status is clean.", a.id, a.id)
	case a.status == inspect.Rejected:
		return fault.New(fault.AttachmentRejected, "The attachment %s did not pass the scan: %s Send the message without it.", a.id, a.note)
	case a.size != named.size:
		return fault.New(fault.InvalidField, "The attachment %s has %d bytes, and the message says %d.", a.id, a.size, named.size).About("payload.attachments.size")
	case a.digest != named.digest:
		return fault.New(fault.InvalidField, "The attachment %s has the digest %s, and the message says %.80s.", a.id, a.digest, named.digest).About("payload.attachments.digest")
	}
	return nil
}

// claim makes sure, in the transaction of the message, that nobody has sent an attachment
// since it was looked at.
func (l *letter) claim(tx *ledger.Tx) error {
	for _, id := range l.meta.Attachments {
		a, err := findAttachment(id, tx.QueryRow)
		if err != nil {
			return err
		}
		if a.message != "" {
			return uploadedTwice(id)
		}
	}
	return nil
}

// expireAttachments ends a step of attachments whose time is over, and removes what they
// held.
func (m *Mail) expireAttachments(ctx context.Context) (n int, err error) {
	var names []string
	err = m.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		names = nil
		events, err := store.All(tx.Query, func(scan store.Scan) (ledger.Event, error) {
			e, name := ledger.Event{Kind: kindAttExpired, Actor: "system", Body: about{}}, ""
			err := scan(&e.Subject, &e.Workspace, &name)
			names = append(names, name)
			return e, err
		}, "SELECT id, workspace, blob FROM mail_attachment WHERE status <> 'expired' AND expires_at <= $1 ORDER BY expires_at LIMIT $2", tx.Now().UnixMicro(), sweepStep)
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
			err = errors.Join(err, m.Blobs.Remove(ctx, name))
		}
	}
	return n, err
}

// sweepBlobs removes bytes that nothing refers to: of uploads that were not recorded, and
// of attachments that ended just before a crash.
func (m *Mail) sweepBlobs(ctx context.Context) error {
	names, err := m.Blobs.Before(ctx, time.Now().Add(-uploadTime))
	if err != nil {
		return err
	}
	for _, name := range names {
		var n int64
		if err := m.core.DB.QueryRow(ctx, "SELECT count(*) FROM mail_attachment WHERE blob = $1 AND status <> 'expired' AND status <> 'rejected'", []any{name}, &n); err != nil {
			return err
		}
		if n == 0 {
			if err := m.Blobs.Remove(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}
