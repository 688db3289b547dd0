package mailbox

import (
	"bytes"
	"encoding/json" // the folder is shared with clients that write what wire would refuse
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/injection"
)

// Envelope is the part of an envelope that is used here. It is not amp.Envelope: other providers
// leave members out.
type Envelope struct {
	Version   string `json:"version,omitempty"`
	ID        string `json:"id"`
	From      string `json:"from"`
	To        string `json:"to"`
	Subject   string `json:"subject"`
	Priority  string `json:"priority"`
	Timestamp string `json:"timestamp"`
	Signature string `json:"signature"`
	ThreadID  string `json:"thread_id,omitempty"`
	InReplyTo string `json:"in_reply_to,omitempty"`
	ExpiresAt string `json:"expires_at,omitempty"`
}

// Attachment is an attachment: in a payload as its sender wrote it, in Security as it is known. Size and
// digest are checked after a download.
type Attachment struct {
	ID          string `json:"id"`
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`
	Digest      string `json:"digest"`
	URL         string `json:"url"`
	ScanStatus  string `json:"scan_status"`
	UploadedAt  string `json:"uploaded_at"`
	ExpiresAt   string `json:"expires_at"`
	ScanNote    string `json:"scan_note,omitempty"`
}

// Payload is the content of a message, decoded. Signatures are verified over the raw payload, never
// over this.
type Payload struct {
	Type        string          `json:"type"`
	Message     string          `json:"message"`
	Context     json.RawMessage `json:"context,omitempty"`
	Attachments []Attachment    `json:"attachments,omitempty"`
	// Nonce makes every signature another one, so that a provider can refuse a copy (MSG-111). Every verifier hashes the
	// payload as a whole, so it is signed for all of them.
	Nonce string `json:"nonce,omitempty"`
}

// Security is the result of assess, kept in the member local.security of the file.
type Security struct {
	Trust Trust    `json:"trust"`
	Flags []string `json:"injection_flags"`
	// Places say where this client found its flags.
	Places []injection.Mark `json:"injection_places,omitempty"`
	// Files are the attachments as the provider that delivered the message knows them. A file that it does not
	// know is amp.Unverified, whatever its sender says.
	Files      []Attachment `json:"attachments,omitempty"`
	Wrapped    bool         `json:"wrapped"` // always false: a message is wrapped when it is shown
	VerifiedAt string       `json:"verified_at,omitempty"`
	Reason     string       `json:"reason,omitempty"` // why it is not trusted
}

// Message is a message in the folder. A fetch makes it; MarkRead changes its state, and Remove
// deletes it. Envelope and payload never change.
type Message struct {
	Envelope Envelope
	Payload  Payload
	Security Security
	Read     bool
	State    string // of a message in Sent, as its provider said last: delivered, queued, held, failed and so on
	Error    string // of a message in Sent: why it does not arrive, or has not arrived yet
	From     string // the provider it was fetched from

	path string // "" for one that is not stored yet
	file object // the whole file, with members of other clients
}

// The two folders of messages.
const (
	Inbox = "inbox"
	Sent  = "sent"
)

// The values of the status members, which the bash clients share.
const unread, read = "unread", "read"

// notInFolder are characters that the bash clients remove from the name of a folder.
var notInFolder = regexp.MustCompile(`[^A-Za-z0-9_-]`)

// folderOf is the name of the folder for messages with one correspondent, as the bash clients make
// it. Two addresses may share a folder.
func folderOf(address string) string {
	name := notInFolder.ReplaceAllString(strings.NewReplacer("@", "_", ".", "_").Replace(address), "")
	if name == "" {
		return "unknown"
	}
	return name[:min(len(name), 200)]
}

func (b *Box) messageFile(folder, address, id string) string {
	return filepath.Join(b.Dir, "messages", folder, folderOf(address), id+".json")
}

// readMessage reads a file of the folder.
func readMessage(path string) (Message, error) {
	o, err := readObject(path)
	if err != nil {
		return Message{}, err
	}
	return asMessage(o, path)
}

// asMessage decodes a message from a file or from a provider's answer. Envelope and payload must be
// there; everything else is optional, and a missing trust is Untrusted.
func asMessage(o object, path string) (Message, error) {
	m := Message{path: path, file: o}
	if err := json.Unmarshal(o["envelope"], &m.Envelope); err != nil {
		return m, err
	}
	if err := json.Unmarshal(o["payload"], &m.Payload); err != nil {
		return m, err
	}
	local := o.part("local")
	_ = json.Unmarshal(local["security"], &m.Security) // other clients write other things
	if !m.Security.Trust.known() {
		m.Security.Trust = Untrusted
	}
	m.Security.Files = knownFiles(m.Payload.Attachments, m.Security.Files)
	m.From = local.text("fetched_from")
	// The bash clients prefer local; older ones write metadata alone.
	status := local.text("status")
	if status == "" {
		status = o.part("metadata").text("status")
	}
	m.Read, m.State = status != "" && status != unread, strings.Replace(oneLine(status, 32), held, shownHeld, 1)
	m.Error = oneLine(local.text("error"), 600)
	return m, nil
}

// Raw is the whole file, for --json.
func (m *Message) Raw() map[string]json.RawMessage { return m.file }

// List reads the messages of a folder, newest first. Damaged files are skipped and returned by their
// paths: one broken file must not hide the others.
func (b *Box) List(folder string) (messages []Message, damaged []string, err error) {
	root := filepath.Join(b.Dir, "messages", folder)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || filepath.Ext(path) != ".json" {
			return nil
		}
		m, err := readMessage(path)
		if err != nil {
			damaged = append(damaged, path)
			return nil //nolint:nilerr // it is reported by its name
		}
		messages = append(messages, m)
		return nil
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, unreadable(err, root)
	}
	// Times have no fraction, so ids decide within a second.
	slices.SortFunc(messages, func(x, y Message) int {
		if c := strings.Compare(y.Envelope.Timestamp, x.Envelope.Timestamp); c != 0 {
			return c
		}
		return strings.Compare(y.Envelope.ID, x.Envelope.ID)
	})
	return messages, damaged, nil
}

// Find reads one message of a folder by its id.
func (b *Box) Find(folder, id string) (*Message, error) {
	if !amp.IDForm.MatchString(id) {
		return nil, fault.New(fault.InvalidField, "A message's id should look like msg_1706648400_abc123, and is %.80q.", id)
	}
	// The folder is that of the sender's address, which is not known from the id.
	found, err := filepath.Glob(filepath.Join(glob(b.Dir), "messages", folder, "*", id+".json"))
	if err != nil || len(found) == 0 {
		return nil, fault.New(fault.NotFound,
			"There is no message %s here. `signalbox mail inbox --all` lists what there is, "+
				"and `signalbox mail fetch` gets what waits.", id)
	}
	m, err := readMessage(found[0])
	if err != nil {
		return nil, unreadable(err, found[0])
	}
	return &m, nil
}

// glob escapes the name of a folder for filepath.Glob.
func glob(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

// MarkRead marks a message as read, in both members that clients look at.
//
// A message that another process removed in the meantime is not an error.
func (b *Box) MarkRead(m *Message) error {
	if m.Read {
		return nil
	}
	unlock, err := lock(b.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(m.path); errors.Is(err, fs.ErrNotExist) {
		return nil // removed in the meantime: do not write it again
	}
	local, metadata := m.file.part("local"), m.file.part("metadata")
	local.set(read, "status")
	local.set(b.stamp(), "read_at")
	metadata.set(read, "status")
	m.file.set(local, "local")
	m.file.set(metadata, "metadata")
	m.Read = true
	return writeJSON(m.path, m.file, 0o600)
}

// Remove deletes a message and its downloaded attachments. Its id stays in replay_db, so it is not
// fetched again.
func (b *Box) Remove(m *Message) error {
	unlock, err := lock(b.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	if err := os.Remove(m.path); err != nil {
		return unwritable(err, m.path)
	}
	if err := os.RemoveAll(b.attachmentDir(m.Envelope.ID)); err != nil {
		return unwritable(err, b.attachmentDir(m.Envelope.ID))
	}
	_ = os.Remove(filepath.Dir(m.path)) // fails unless the folder is empty
	return nil
}

// payloadBytes is the raw payload. Its tokens are those that were signed; white space may differ,
// which no canonical form depends on.
func (m *Message) payloadBytes() []byte { return bytes.TrimSpace(m.file["payload"]) }
