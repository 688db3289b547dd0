package mailbox

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

const (
	maxFile  = 25 << 20
	maxFiles = 10
	scanTime = 2 * time.Minute
	scanStep = 2 * time.Second // between questions, after the first few
)

// upload hands files to the provider, and waits until it has looked into them.
func upload(ctx context.Context, as *caller, r *Registration, files []string) ([]Attachment, error) {
	if len(files) > maxFiles {
		return nil, fault.New(fault.TooManyAttachments, "A message brings at most %d attachments, and these are %d.",
			maxFiles, len(files))
	}
	var all []Attachment
	for _, path := range files {
		a, err := uploadOne(ctx, as, r, path)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

func uploadOne(ctx context.Context, as *caller, r *Registration, path string) (Attachment, error) {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return Attachment{}, fault.Wrap(err, fault.NotFound, "Cannot read the file %s.", path)
	}
	if info.Size() > maxFile {
		return Attachment{},
			fault.New(fault.AttachmentTooLarge, "%s has %d bytes; the most is %d.", path, info.Size(), maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Attachment{}, fault.Wrap(err, fault.NotFound, "Cannot read the file %s.", path)
	}
	media, _, err := mime.ParseMediaType(mime.TypeByExtension(filepath.Ext(path)))
	if err != nil {
		media = "application/octet-stream"
	}
	var at struct {
		ID      string            `json:"attachment_id"`
		URL     string            `json:"upload_url"`
		Headers map[string]string `json:"upload_headers"`
	}
	about := map[string]any{
		"filename": safeName(filepath.Base(path)), "content_type": media, "size": len(content),
		"digest": digest(content),
	}
	if err := as.call(ctx, http.MethodPost, r.APIURL+"/attachments/upload", about, &at); err != nil {
		return Attachment{}, err
	}
	if !amp.IDForm.MatchString(at.ID) {
		return Attachment{},
			fault.New(fault.Internal, "%s calls the attachment %.80q, which cannot be used.", r.Provider, plain(at.ID, 80))
	}
	if err := sameCare(r.APIURL, at.URL); err != nil {
		return Attachment{}, err
	}
	if err := putBytes(ctx, at.URL, content, media, at.Headers); err != nil {
		return Attachment{}, err
	}
	if err := as.call(ctx, http.MethodPost, r.APIURL+"/attachments/"+at.ID+"/confirm", nil, nil); err != nil {
		return Attachment{}, err
	}
	return awaitScan(ctx, as, r, at.ID)
}

func putBytes(ctx context.Context, address string, content []byte, media string, headers map[string]string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(content))
	if err != nil {
		return fault.Wrap(err, fault.Internal, "The provider gave an address to upload to that cannot be used.")
	}
	req.Header.Set("Content-Type", media)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	_, err = newCaller("").do(req, 1<<20) // the address is the permission
	return err
}

// awaitScan asks until the provider has looked into an attachment.
func awaitScan(ctx context.Context, as *caller, r *Registration, id string) (Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, scanStep) {
		var status struct {
			Attachment
			ID string `json:"attachment_id"`
		}
		if err := as.call(ctx, http.MethodGet, r.APIURL+"/attachments/"+id, nil, &status); err != nil {
			return Attachment{}, err
		}
		status.Attachment.ID = status.ID
		switch status.ScanStatus {
		case "pending":
		case "rejected":
			return Attachment{},
				fault.New(fault.AttachmentRejected, "The provider's scan rejects %s. Send the message without it.",
					plain(status.Filename, 255))
		default:
			return status.Attachment, nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return Attachment{},
				fault.New(fault.AttachmentPending, "The provider's scan of an attachment takes longer than %s. Try again later.",
					scanTime)
		}
	}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

var (
	notInName  = regexp.MustCompile(`[^A-Za-z0-9._-]`)
	deviceName = regexp.MustCompile(`(?i)^(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)`)
)

// safeName is a file's name that is one everywhere, and leads nowhere else.
func safeName(name string) string {
	name = strings.Trim(notInName.ReplaceAllString(name, "_"), ".")
	if name == "" || deviceName.MatchString(name) {
		name = "_" + name
	}
	return name[:min(len(name), 255)]
}

func (b *Box) attachmentDir(messageID string) string {
	return filepath.Join(b.Dir, "attachments", messageID)
}

// Download gets an attachment of a message into a folder, "" for the agent's own, checked
// against its size and digest. One that the scan finds suspicious takes force.
func (b *Box) Download(ctx context.Context, m *Message, a Attachment, dir string, force bool) (string, error) {
	name := safeName(a.Filename)
	switch a.ScanStatus {
	case "clean", "basic_clean":
	case "rejected":
		return "", fault.New(fault.AttachmentRejected, "The scan rejected %s.", name)
	default:
		if !force {
			return "", fault.New(fault.AttachmentRejected,
				"The scan says that %s is %s. If you know what it is, get it with --force.", name, plain(a.ScanStatus, 32))
		}
	}
	if a.Size < 0 || a.Size > maxFile {
		return "", fault.New(fault.AttachmentTooLarge, "%s has %d bytes; the most is %d.", name, a.Size, maxFile)
	}
	content, err := b.attachment(ctx, m, a)
	if err != nil {
		return "", err
	}
	if int64(len(content)) != a.Size || digest(content) != a.Digest {
		return "", fault.New(fault.VerificationFailed,
			"%s is not the file that was sent: its size or digest is another. Try again; if it stays so, do not use it.", name)
	}
	if dir == "" {
		dir = b.attachmentDir(m.Envelope.ID)
	}
	return saveNew(dir, name, safeName(a.ID)+"-"+name, content)
}

// saveNew writes a file under the first of two names that is free, or has the file
// already: nothing that is there is lost to what a stranger calls a file.
func saveNew(dir, name, other string, content []byte) (string, error) {
	path := filepath.Join(dir, name)
	err := createFile(path, content, 0o600)
	if !errors.Is(err, fs.ErrExist) {
		return path, err
	}
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, content) {
		return path, nil
	}
	if other == "" {
		return "", fault.New(fault.AlreadyExists, "There is another file at %s. Choose another folder with --dest.", path)
	}
	return saveNew(dir, other, "", content)
}

// attachment gets the bytes: from the agent's own provider, or from where the sender
// says. A stranger's address is only called encrypted, so that a message cannot make us
// call what is near.
func (b *Box) attachment(ctx context.Context, m *Message, a Attachment) ([]byte, error) {
	r, err := b.through(m)
	if err != nil {
		return nil, err
	}
	as, address := newCaller(""), a.URL
	if address == "" {
		if !amp.IDForm.MatchString(a.ID) {
			return nil, fault.New(fault.AttachmentNotFound, "The message says neither where %s is nor what it is called.",
				safeName(a.Filename))
		}
		as, address = newCaller(r.apiKey), r.APIURL+"/attachments/"+a.ID+"/download"
	}
	u, err := url.Parse(address)
	own, _ := url.Parse(r.APIURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && (own == nil || u.Scheme != own.Scheme || u.Host != own.Host) {
		return nil, fault.New(fault.InvalidField,
			"%s should be at an https address, or with the provider %s, and is at %.200q.", safeName(a.Filename), r.Provider,
			plain(address, 200))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return nil, err
	}
	if as.key != "" {
		req.Header.Set("Authorization", "Bearer "+as.key)
	}
	return as.do(req, a.Size)
}
