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

// Announced is where to upload.
type Announced struct {
	ID        string            `json:"attachment_id"`
	UploadURL string            `json:"upload_url"`
	Method    string            `json:"upload_method"`
	Headers   map[string]string `json:"upload_headers"`
	ExpiresIn int64             `json:"expires_in"`
}

var digestForm = regexp.MustCompile(`^[0-9a-f]{64}$`)

// wholeNumber reads a member that has to be there; false when it is no whole number.
func wholeNumber(f *amp.Fields, name, right string) (n int64, ok bool) {
	raw, there := f.Get(name)
	if !there {
		f.Missing(name, right)
		return 0, true // which is said
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil && n >= 0
}

// readAnnouncement reads what a client wants to upload.
func readAnnouncement(body []byte) (announced, error) {
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
		return a, fault.New(fault.AttachmentTooLarge, "The file has %d bytes; the most is %d.", a.Size, MaxSize).About("size")
	}
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

var deviceNames = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)

// cleanFilename makes a name that every system takes for a file and nothing else.
func cleanFilename(name string) (string, error) {
	lower := strings.ToLower(name)
	if strings.Contains(lower, "%2f") || strings.Contains(lower, "%5c") || strings.Contains(lower, "%00") ||
		strings.ContainsAny(name, "/\\") {
		return "", fault.New(fault.InvalidField, "A filename has no folders in it. It is %.80q.", name).About("filename")
	}
	clean := strings.Map(func(c rune) rune {
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if plain || strings.ContainsRune("._-", c) {
			return c
		}
		return '_'
	}, name)
	if clean = strings.Trim(clean, ". "); deviceNames.MatchString(clean) {
		clean = "_" + clean
	}
	if clean == "" {
		return "", fault.New(fault.InvalidField, "A filename has at least one letter or digit. It is %.80q.",
			name).About("filename")
	}
	return clean[:min(len(clean), 255)], nil
}

// Announce makes a place for a file.
func (t *Attachments) Announce(ctx context.Context, who roster.Identity, body []byte) (Announced, error) {
	if err := directory.Active(who); err != nil {
		return Announced{}, err
	}
	a, err := readAnnouncement(body)
	if err != nil {
		return Announced{}, err
	}
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

// Upload keeps the bytes of an attachment. They are on disk before anything says that
// they are there; those of an upload that is not recorded are swept.
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
	// A hundredth more than was announced is taken, and found out by the scan.
	kept, err := t.options.Blobs.Put(ctx, name, r, a.size+a.size/100)
	if errors.Is(err, blob.ErrTooLarge) {
		return fault.New(fault.AttachmentTooLarge, "The file is larger than the %d bytes that were announced.", a.size)
	}
	if err != nil {
		return err
	}
	err = t.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
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
		_ = t.options.Blobs.Remove(ctx, name) // of somebody who was second
	}
	return err
}

func uploadedAlready(id string) error {
	return fault.New(fault.AttachmentUsed,
		"The attachment %s was uploaded already. Ask for a new one with POST /v1/attachments/upload.", id)
}

// Confirm scans what was uploaded. It may be asked again.
func (t *Attachments) Confirm(ctx context.Context, who roster.Identity, id string) (Status, error) {
	a, err := t.own(ctx, who, id)
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
		_ = t.options.Blobs.Remove(ctx, a.blob) // what stays is swept
	}
	a, err = t.find(ctx, id)
	return t.status(a), err
}

// scan reads the file and looks into it.
func (t *Attachments) scan(ctx context.Context, a record) (status, note string, err error) {
	kept, err := t.options.Blobs.Get(ctx, a.blob)
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
