package attachment

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/roster"
)

// Announced is the answer to an announcement: where and how to upload the file.
type Announced struct {
	ID string `json:"attachment_id"`
	// UploadURL works once, without a key, until ExpiresIn seconds have passed.
	UploadURL string            `json:"upload_url"`
	Method    string            `json:"upload_method"`
	Headers   map[string]string `json:"upload_headers"`
	ExpiresIn int64             `json:"expires_in"`
}

// digestForm is the hex of a SHA-256, in lower case as clients compare it.
var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// wholeNumber reads a required member; ok is false if it is no whole number of 0 or more. A missing
// one is recorded in f.
func wholeNumber(f *amp.Fields, name, right string) (n int64, ok bool) {
	raw, there := f.Get(name)
	if !there {
		f.Missing(name, right)
		return 0, true // f.Err says it
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0
}

// readAnnouncement reads and checks the announcement of a file.
func readAnnouncement(body []byte) (announced, error) {
	// The form of every member is checked before the first limit, so that one answer says it all.
	f, err := amp.ReadFields(body)
	if err != nil {
		return announced{}, err
	}
	a := announced{
		Filename:    f.Required("filename", 255, "the name of the file, such as \"report.pdf\""),
		ContentType: f.Required("content_type", 127, "a media type such as \"application/pdf\""),
	}
	digest := f.Required("digest", 128, "\"sha256:\" and the 64 hex digits of the file's SHA-256")
	size, ok := wholeNumber(f, "size", "how many bytes the file has")
	if a.Size = size; !ok {
		raw, _ := f.Get("size")
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
	if a.Size > MaxSize {
		return a, fault.New(fault.AttachmentTooLarge, "The file has %d bytes; the limit is %d.", a.Size,
			MaxSize).About("size")
	}
	// Two different codes: the protocol has one of its own for an algorithm that it does not know.
	algorithm, hexDigits, _ := strings.Cut(digest, ":")
	if algorithm != "sha256" {
		return a, fault.New(fault.InvalidDigest, "The digest should be \"sha256:\" and 64 hex digits, and is %.80q.",
			digest).About("digest")
	}
	if !digestForm.MatchString(hexDigits) {
		return a, fault.New(fault.InvalidField,
			"The digest should be \"sha256:\" and 64 lower-case hex digits, and is %.80q.", digest).About("digest")
	}
	a.Digest = digest
	return a, nil
}

// cleanFilename makes the safe name of a file. Folders, also escaped ones, are refused rather than
// removed: they are an attack or a mistake.
func cleanFilename(name string) (string, error) {
	lower := strings.ToLower(name)
	if strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") || strings.Contains(lower, "%00") ||
		strings.ContainsAny(name, "/\\") {
		return "", fault.New(fault.InvalidField, "A filename must not contain folders, and is %.80q.", name).About("filename")
	}
	if strings.Trim(name, ". ") == "" {
		return "", fault.New(fault.InvalidField, "A filename must have more than dots and blanks, and is %.80q.",
			name).About("filename")
	}
	return amp.SafeFilename(name), nil
}

// Announce records a file that an agent is about to upload, and returns where to. The upload has
// one hour.
func (t *Attachments) Announce(ctx context.Context, who roster.Identity, body []byte) (Announced, error) {
	if err := directory.Active(who); err != nil {
		return Announced{}, err
	}
	a, err := readAnnouncement(body)
	if err != nil {
		return Announced{}, err
	}
	// MSG-69: a client that does not know the form of an id goes on with one of its own.
	id := amp.NewID("att", t.core.Now())
	a.Agent, a.ExpiresAt = who.ID, t.core.Now().Add(uploadTime).UnixMicro()
	err = t.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: who.Workspace, Kind: kindAnnounced, Actor: who.Actor(), Subject: id, Body: a})
		return nil
	})
	return Announced{
		ID: id, UploadURL: t.address(id, "data", forUpload), Method: http.MethodPut,
		Headers: map[string]string{"Content-Type": a.ContentType}, ExpiresIn: int64(uploadTime / time.Second),
	}, err
}

// Upload stores the bytes of an attachment, once. They are durable before the entry says that they
// are there; bytes of an upload that was not recorded are swept. Each try has a name of its own, so
// that two uploads at once do not write to the same place.
func (t *Attachments) Upload(ctx context.Context, id string, r io.Reader) error {
	a, err := t.find(ctx, id)
	if err != nil {
		return err
	}
	if err := a.expired(t.core.Now()); err != nil {
		return err
	}
	if a.status != isAnnounced {
		return uploadedAlready(id)
	}
	name := id + "-" + strings.ToLower(rand.Text()[:8])
	// One per cent more than announced is accepted; the scan rejects it with a clear reason.
	kept, err := t.options.Blobs.Put(ctx, name, r, a.size+a.size/100)
	if errors.Is(err, blob.ErrTooLarge) {
		return fault.New(fault.AttachmentTooLarge, "The file is larger than the %d bytes that were announced.", a.size)
	}
	if err != nil {
		return err
	}
	err = t.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		// Another upload may have been recorded since find: the first one wins.
		var status string
		if err := tx.QueryRow("SELECT status FROM mail_attachment WHERE id = $1", []any{id}, &status); err != nil {
			return err
		}
		if status != isAnnounced {
			return uploadedAlready(id)
		}
		tx.Append(ledger.Event{
			Workspace: a.workspace, Kind: kindUploaded, Actor: "system", Subject: id,
			Body: uploaded{name, kept.Size, kept.SHA256},
		})
		return nil
	})
	if fault.Is(err, fault.AttachmentUsed) {
		_ = t.options.Blobs.Remove(ctx, name) // a second upload; the sweep removes what stays
	}
	return err
}

// uploadedAlready is the answer to a second upload.
func uploadedAlready(id string) error {
	return fault.New(fault.AttachmentUsed,
		"The attachment %s was uploaded already. Ask for a new one with POST /v1/attachments/upload.", id)
}

// Confirm scans an uploaded file and records the verdict, which never changes. It may be called
// again: after a verdict it only reports it, after a scanner that did not answer it scans again.
func (t *Attachments) Confirm(ctx context.Context, who roster.Identity, id string) (Status, error) {
	a, err := t.findOwn(ctx, who, id)
	if err != nil {
		return Status{}, err
	}
	if err := a.expired(t.core.Now()); err != nil {
		return Status{}, err
	}
	if a.status == isAnnounced {
		return Status{}, fault.New(fault.AttachmentPending,
			"The attachment %s was not uploaded yet. PUT its bytes to the upload_url first.", id)
	}
	// Scanned before: the verdict never changes.
	if a.status != isUploaded {
		return t.status(a), nil
	}
	b := scanned{ExpiresAt: t.core.Now().Add(unroutedTime).UnixMicro()}
	if b.Status, b.Note, err = t.scan(ctx, a); err != nil {
		return Status{}, err
	}
	err = t.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: a.workspace, Kind: kindScanned, Actor: "system", Subject: id, Body: b})
		return nil
	})
	if err != nil {
		return Status{}, err
	}
	if b.Status == inspect.Rejected {
		_ = t.options.Blobs.Remove(ctx, a.blob) // the sweep removes what stays
	}
	a, err = t.find(ctx, id)
	return t.status(a), err
}

// scan checks size and digest (MSG-70), inspects the content, and asks the virus scanner if there
// is one. MSG-77: without the scanner's answer there is no verdict, only an error.
func (t *Attachments) scan(ctx context.Context, a record) (status, note string, err error) {
	kept, err := t.options.Blobs.Get(ctx, a.blob)
	if err != nil {
		return "", "", err
	}
	file, err := blob.Local(kept)
	if err != nil {
		return "", "", err
	}
	// Local has taken over the reader from the store.
	defer func() { _ = file.Close() }()
	// Hashed again and not taken from Put: what counts is what is stored now.
	sum := sha256.New()
	size, err := io.Copy(sum, file)
	switch {
	case err != nil:
		return "", "", err
	case size != a.size:
		return inspect.Rejected, fmt.Sprintf("The file has %d bytes, and %d were announced.", size, a.size), nil
	case "sha256:"+hex.EncodeToString(sum.Sum(nil)) != a.digest:
		return inspect.Rejected, "The file is not the one whose digest was announced.", nil
	}
	if status, note, err = inspect.File(file, size, a.contentType); err != nil || status == inspect.Rejected ||
		t.options.Clam == "" {
		return status, note, err
	}
	found, err := t.options.Clam.Scan(ctx, io.NewSectionReader(file, 0, size))
	switch {
	case err != nil:
		return "", "", fault.Wrap(err, fault.ScannerUnavailable,
			"The virus scanner does not scan the attachment %s now. Confirm it again later.", a.id)
	case found != "":
		return inspect.Rejected, "The virus scanner found " + found + ".", nil
	}
	return status, note, nil
}
