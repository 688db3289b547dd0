package attachment

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"signalbox/internal/blob"
	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
)

// The limits of attachments: bytes of one file, bytes and files of one message, and how long each
// state may last (MSG-74).
const (
	MaxSize  = 25 << 20
	MaxTotal = 100 << 20
	MaxCount = 10

	uploadTime   = time.Hour          // from announcement to upload
	unroutedTime = 2 * time.Hour      // from confirmation to sending
	routedTime   = 7 * 24 * time.Hour // from sending to the last download
)

// The states of an attachment before and after those of the scan (inspect.Clean and so on).
// It goes announced, uploaded, then clean, suspicious or rejected, and ends as expired.
const (
	isAnnounced = "announced"
	isUploaded  = "uploaded"
	isExpired   = "expired"
)

// Options are the storage and the scanner of attachments.
type Options struct {
	Blobs blob.Store
	Clam  inspect.Clam // the address of a virus scanner, "" for none
	// Received reports whether a message was delivered to an agent. Package mail answers it, since
	// this package knows no messages.
	Received func(ctx context.Context, agentID, message string) (bool, error)
	// Host is the id of this host in a mesh, whose other hosts Federation calls.
	Host       string
	Federation *federation.Federation
}

// Attachments accepts, scans and serves the files of messages. The bytes are in a blob.Store, and
// everything about them in the ledger; bytes are stored before an entry says that they are there,
// and removed after an entry says that they are not. It may be used from any goroutine.
type Attachments struct {
	options Options
	core    protocol.Core
}

// New makes the service over a core whose ledger has Apply.
func New(core protocol.Core, o Options) *Attachments {
	return &Attachments{options: o, core: core}
}

// record is a row of mail_attachment. agent is who announced it; message is "" until a message
// has claimed it; times are microseconds.
type record struct {
	id, workspace, agent, filename, contentType, digest string
	size                                                int64
	status, note, blob, message                         string
	uploadedAt, expiresAt                               int64
}

// notFound is also the answer about attachments of other agents, so that ids cannot be guessed.
func notFound(id string) *fault.Error {
	return fault.New(fault.AttachmentNotFound,
		"There is no attachment %.80q of yours. POST /v1/attachments/upload makes one.", id)
}

// expired refuses an attachment whose time is over, also before the sweep has ended it.
func (a *record) expired(now time.Time) error {
	if a.status == isExpired || a.expiresAt <= now.UnixMicro() {
		return fault.New(fault.AttachmentExpired, "The attachment %s has expired. Upload it again.", a.id)
	}
	return nil
}

// scanStatus is the status in the protocol's words, which has one for everything before the scan.
func (a *record) scanStatus() string {
	if a.status == isAnnounced || a.status == isUploaded {
		return "pending"
	}
	return a.status
}

// Status is an attachment as its sender and its recipient see it. URL is present once it has passed the scan; who
// has the URL can fetch the file.
type Status struct {
	ID          string `json:"attachment_id"`
	Filename    string `json:"filename"`
	ContentType string `json:"content_type"`
	Size        int64  `json:"size"`
	Digest      string `json:"digest"`
	ScanStatus  string `json:"scan_status"`
	ScanNote    string `json:"scan_note,omitempty"`
	URL         string `json:"url,omitempty"`
	UploadedAt  string `json:"uploaded_at,omitempty"`
	ExpiresAt   string `json:"expires_at"`
}

// Status reports on an attachment that the agent announced, or that was sent to it.
func (t *Attachments) Status(ctx context.Context, who roster.Identity, id string) (Status, error) {
	a, err := t.findFor(ctx, who, id)
	if fault.Is(err, fault.AttachmentNotFound) {
		if host, err := t.isAway(ctx, who, id, ""); err != nil || host != "" {
			if err != nil {
				return Status{}, err
			}
			return t.statusAway(ctx, host, id)
		}
	}
	if err == nil {
		err = a.expired(t.core.Now())
	}
	return t.status(a), err
}

// status is the public form of a record.
func (t *Attachments) status(a record) Status {
	s := Status{
		ID: a.id, Filename: a.filename, ContentType: a.contentType, Size: a.size, Digest: a.digest,
		ScanStatus: a.scanStatus(), ScanNote: a.note, ExpiresAt: amp.Stamp(time.UnixMicro(a.expiresAt)),
	}
	if a.uploadedAt > 0 {
		s.UploadedAt = amp.Stamp(time.UnixMicro(a.uploadedAt))
	}
	// The URL is for the message's recipients; it must not exist before there is a verdict.
	if a.status == inspect.Clean || a.status == inspect.Suspicious {
		s.URL = t.address(a.id, "file", forDownload)
	}
	return s
}

// The purposes of tickets. One for uploading does not open the file for reading, nor the reverse.
const (
	forUpload   = "upload"
	forDownload = "download"
)

// ticket is the secret part of an upload or download URL: an HMAC over purpose and id. It is
// derived and stored nowhere, and ends with the attachment.
func (t *Attachments) ticket(purpose, id string) string {
	h := hmac.New(sha256.New, t.core.Derive("signalbox mail attachment "+purpose))
	h.Write([]byte(id))
	return hex.EncodeToString(h.Sum(nil))
}

// address is a URL that works without a key: the ticket in it is the permission.
func (t *Attachments) address(id, what, purpose string) string {
	return amp.Endpoint(t.core.BaseURL) + "/attachments/" + id + "/" + what + "?token=" + t.ticket(purpose, id)
}

// checkTicket refuses a URL that this server did not make.
func (t *Attachments) checkTicket(purpose, id, ticket string) error {
	if !hmac.Equal([]byte(ticket), []byte(t.ticket(purpose, id))) {
		return fault.New(fault.Forbidden, "This URL was not made by this server. Use the whole URL as it was returned.")
	}
	return nil
}
