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
	"slices"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// The limits of attachments: bytes of a file, files of a message, and how long and how often to ask
// for the verdict of the scan.
const (
	maxFile  = 25 << 20
	maxFiles = 10
	scanTime = 2 * time.Minute
	scanStep = 2 * time.Second // after the first few, shorter pauses
)

// upload uploads files, one after another, and waits for the verdict about each. Files that were
// uploaded before one fails are left to expire with the provider.
func upload(ctx context.Context, as *caller, r *Registration, files []string) ([]Attachment, error) {
	if len(files) > maxFiles {
		return nil, fault.New(fault.TooManyAttachments, "A message can have at most %d attachments, and this one has %d.",
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

// uploadOne announces a file, uploads it, has it scanned and waits for the verdict. The result is the
// provider's record, which goes into the message as it is.
func uploadOne(ctx context.Context, as *caller, r *Registration, path string) (Attachment, error) {
	// A regular file only: a pipe has no size to announce.
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return Attachment{}, fault.Wrap(err, fault.NotFound, "Cannot read the file %s.", path)
	}
	if info.Size() > maxFile {
		return Attachment{},
			fault.New(fault.AttachmentTooLarge, "%s has %d bytes; the limit is %d.", path, info.Size(), maxFile)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return Attachment{}, fault.Wrap(err, fault.NotFound, "Cannot read the file %s.", path)
	}
	// By the extension alone. The provider compares it with the bytes, so a guess must not be too bold.
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
		"filename": amp.SafeFilename(filepath.Base(path)), "content_type": media, "size": len(content),
		"digest": digest(content),
	}
	if err := as.call(ctx, http.MethodPost, r.APIURL+"/attachments/upload", about, &at); err != nil {
		return Attachment{}, err
	}
	// The id becomes part of URLs below.
	if !amp.IDForm.MatchString(at.ID) {
		return Attachment{},
			fault.New(fault.Internal, "%s returned %.80q as the id of the attachment, which is invalid.", r.Provider,
				oneLine(at.ID, 80))
	}
	// The upload URL is the provider's word, and the file is not for everybody.
	if err := checkNoDowngrade(r.APIURL, at.URL); err != nil {
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

// putBytes uploads to a signed URL. It sends no key: the URL may be another server's.
//
// The provider's headers come last: it may insist on a type.
func putBytes(ctx context.Context, address string, content []byte, media string, headers map[string]string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, address, bytes.NewReader(content))
	if err != nil {
		return fault.Wrap(err, fault.Internal, "The provider returned an invalid upload URL.")
	}
	req.Header.Set("Content-Type", media)
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	_, err = newCaller("").do(req, 1<<20) // the address is the permission
	return err
}

// awaitScan asks for the verdict until there is one. A rejected file is an error; a suspicious one is
// sent, with that verdict.
func awaitScan(ctx context.Context, as *caller, r *Registration, id string) (Attachment, error) {
	ctx, cancel := context.WithTimeout(ctx, scanTime)
	defer cancel()
	// Our provider has the verdict at once; others take seconds.
	for pause := 50 * time.Millisecond; ; pause = min(2*pause, scanStep) {
		var status struct {
			Attachment
			ID string `json:"attachment_id"`
		}
		if err := as.call(ctx, http.MethodGet, r.APIURL+"/attachments/"+id, nil, &status); err != nil {
			return Attachment{}, err
		}
		status.Attachment.ID, status.Attachment.ScanNote = status.ID, "" // the note is not part of a message
		switch status.ScanStatus {
		case "pending":
		case "rejected":
			return Attachment{},
				fault.New(fault.AttachmentRejected, "The provider's scan rejected %s. Send the message without it.",
					oneLine(status.Filename, 255))
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

// digest is a digest in the form of the protocol.
func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// attachmentDir is the folder of a message's downloaded files. messageID has amp.IDForm.
func (b *Box) attachmentDir(messageID string) string {
	return filepath.Join(b.Dir, "attachments", messageID)
}

// The verdicts of providers. basic_clean is that of one without a virus scanner.
var verdicts = []string{"clean", "basic_clean", "suspicious", "rejected", "pending"}

// knownFiles are the attachments that a payload names, as a provider knows them. Those that the provider does
// not list, or lists with another size or digest, are unverified, and all texts are in forms that are safe to
// show and to use (MSG-76).
func knownFiles(said, listed []Attachment) []Attachment {
	var files []Attachment
	for _, a := range said {
		i := slices.IndexFunc(listed, func(l Attachment) bool {
			// A file that is kept elsewhere may have no id.
			return l.ID == a.ID && (l.ID != "" || l.Filename == amp.SafeFilename(a.Filename)) && l.Size == a.Size &&
				l.Digest == a.Digest
		})
		verdict := amp.Unverified
		a.ScanNote = ""
		if a.ScanStatus == "suspicious" || a.ScanStatus == "rejected" { // its sender may warn of it, and not vouch for it
			a.ScanNote = "Its sender calls it " + a.ScanStatus + "."
		}
		if i >= 0 {
			a = listed[i]
			verdict = among(verdicts, a.ScanStatus, amp.Unverified)
		}
		a.ScanStatus, a.Filename = verdict, amp.SafeFilename(a.Filename)
		if _, _, err := mime.ParseMediaType(a.ContentType); err != nil {
			a.ContentType = "application/octet-stream"
		}
		if !amp.IDForm.MatchString(a.ID) {
			a.ID = ""
		}
		files = append(files, a)
	}
	return files
}

// ask asks the provider for the state of an attachment that it did not list with the message: not every provider
// lists them. Without an answer about the same bytes it stays unverified.
func (b *Box) ask(ctx context.Context, m *Message, a Attachment) Attachment {
	r, err := b.registrationOf(m)
	if err != nil || a.ID == "" {
		return a
	}
	var state struct {
		Attachment
		ID string `json:"attachment_id"`
	}
	err = newCaller(r.apiKey).call(ctx, http.MethodGet, r.APIURL+"/attachments/"+a.ID, nil, &state)
	if err != nil || state.ID != a.ID || state.Size != a.Size || state.Digest != a.Digest {
		return a
	}
	state.Attachment.ID = state.ID
	return knownFiles([]Attachment{a}, []Attachment{state.Attachment})[0]
}

// Download fetches an attachment, one of Security.Files, into a folder, "" for the agent's own, and returns its
// path. Size and digest are checked before anything is written. An attachment that the provider does not call
// clean takes force, and one that it rejected is not fetched.
func (b *Box) Download(ctx context.Context, m *Message, a Attachment, dir string, force bool) (string, error) {
	if a.ScanStatus == amp.Unverified {
		a = b.ask(ctx, m, a)
	}
	name := amp.SafeFilename(a.Filename)
	switch a.ScanStatus {
	case "clean", "basic_clean":
	case "rejected":
		return "", fault.New(fault.AttachmentRejected, "The scan rejected %s.", name)
	case amp.Unverified:
		if !force {
			return "", fault.New(fault.AttachmentRejected,
				"%s is unverified: the provider %s has not seen it, and nothing but the sender's word says what it is. "+
					"If you trust the sender, get it with --force.", name, m.From)
		}
	default:
		if !force {
			return "", fault.New(fault.AttachmentRejected,
				"The scan says that %s is %s. %s If you know what it is, get it with --force.", name, a.ScanStatus,
				oneLine(a.ScanNote, 300))
		}
	}
	// The size bounds how much is read into memory.
	if a.Size < 0 || a.Size > maxFile {
		return "", fault.New(fault.AttachmentTooLarge, "%s has %d bytes; the limit is %d.", name, a.Size, maxFile)
	}
	// Read into memory, at most a.Size bytes.
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
	return saveNew(dir, name, amp.SafeFilename(a.ID+"-"+name), content)
}

// saveNew writes a file under the first of two names that is free, or that has the same content
// already. It never overwrites: the name comes from a stranger.
func saveNew(dir, name, other string, content []byte) (string, error) {
	path := filepath.Join(dir, name)
	err := createFile(path, content, 0o600)
	if !errors.Is(err, fs.ErrExist) {
		return path, err
	}
	// Downloading twice is no conflict.
	if there, err := os.ReadFile(path); err == nil && bytes.Equal(there, content) {
		return path, nil
	}
	if other == "" {
		return "", fault.New(fault.AlreadyExists, "There is another file at %s. Choose another folder with --dest.", path)
	}
	return saveNew(dir, other, "", content)
}

// attachment fetches the bytes from the address in the message, or from our provider if there is none, or if it is not
// for us to call: an address of anybody but our provider must be https, so that a message cannot make us call services
// on this machine or in its network. Our provider has the file, or asks the host of its mesh that has it (MSG-101).
func (b *Box) attachment(ctx context.Context, m *Message, a Attachment) ([]byte, error) {
	r, err := b.registrationOf(m)
	if err != nil {
		return nil, err
	}
	as, address := newCaller(""), a.URL
	u, err := url.Parse(address)
	own, _ := url.Parse(r.APIURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && (own == nil || u.Scheme != own.Scheme || u.Host != own.Host) {
		if !amp.IDForm.MatchString(a.ID) {
			return nil, fault.New(fault.AttachmentNotFound,
				"The message has neither an https URL nor an id for the attachment %s.", amp.SafeFilename(a.Filename))
		}
		as, address = newCaller(r.apiKey), r.APIURL+"/attachments/"+a.ID+"/download?message="+url.QueryEscape(m.Envelope.ID)
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
