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
	"signalbox/internal/mail/inspect"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
)

// The limits of attachments.
const (
	MaxSize  = 25 << 20
	MaxTotal = 100 << 20 // of one message
	MaxCount = 10        // of one message

	uploadTime   = time.Hour          // to upload what was announced
	unroutedTime = 2 * time.Hour      // to send what was confirmed
	routedTime   = 7 * 24 * time.Hour // to fetch what was sent
)

// The states of an attachment, beside what the scan says.
const (
	isAnnounced = "announced"
	isUploaded  = "uploaded"
	isExpired   = "expired"
)

// Options are where files are kept, and what looks into them.
type Options struct {
	Blobs blob.Store
	Clam  inspect.Clam // where a virus scanner is, "" for none
	// Received reports whether a message was sent to an agent, and it may read it.
	Received func(ctx context.Context, agentID, message string) (bool, error)
}

// Attachments are the files of messages.
type Attachments struct {
	options Options
	core    protocol.Core
}

// New makes the service over a core whose ledger has Apply.
func New(core protocol.Core, o Options) *Attachments {
	return &Attachments{options: o, core: core}
}

// record is an attachment as it is stored.
type record struct {
	id, workspace, agent, filename, contentType, digest string
	size                                                int64
	status, note, blob, message                         string
	uploadedAt, expiresAt                               int64
}

func notFound(id string) *fault.Error {
	return fault.New(fault.AttachmentNotFound,
		"There is no attachment %.80q of yours. POST /v1/attachments/upload makes one.", id)
}

func (a *record) expired(now time.Time) error {
	if a.status == isExpired || a.expiresAt <= now.UnixMicro() {
		return fault.New(fault.AttachmentExpired, "The attachment %s is past its time. Upload it again.", a.id)
	}
	return nil
}

// scanStatus is the status in the protocol's words.
func (a *record) scanStatus() string {
	if a.status == isAnnounced || a.status == isUploaded {
		return "pending"
	}
	return a.status
}

// Status is how an attachment is.
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

// Status is how an attachment is that the agent has announced.
func (t *Attachments) Status(ctx context.Context, who roster.Identity, id string) (Status, error) {
	a, err := t.own(ctx, who, id)
	if err == nil {
		err = a.expired(t.core.Now())
	}
	return t.status(a), err
}

func (t *Attachments) status(a record) Status {
	s := Status{
		ID: a.id, Filename: a.filename, ContentType: a.contentType, Size: a.size, Digest: a.digest,
		ScanStatus: a.scanStatus(), ScanNote: a.note, ExpiresAt: amp.Stamp(time.UnixMicro(a.expiresAt)),
	}
	if a.uploadedAt > 0 {
		s.UploadedAt = amp.Stamp(time.UnixMicro(a.uploadedAt))
	}
	if a.status == inspect.Clean || a.status == inspect.Suspicious {
		s.URL = t.address(a.id, "file", forDownload)
	}
	return s
}

// The purposes of tickets.
const (
	forUpload   = "upload"
	forDownload = "download"
)

// ticket proves that we have given out an address.
func (t *Attachments) ticket(purpose, id string) string {
	h := hmac.New(sha256.New, t.core.Derive("signalbox mail attachment "+purpose))
	h.Write([]byte(id))
	return hex.EncodeToString(h.Sum(nil))
}

// address is where the bytes are put or got, by whoever has it.
func (t *Attachments) address(id, what, purpose string) string {
	return amp.Endpoint(t.core.BaseURL) + "/attachments/" + id + "/" + what + "?token=" + t.ticket(purpose, id)
}

// checkTicket refuses an address that we have not given out.
func (t *Attachments) checkTicket(purpose, id, ticket string) error {
	if !hmac.Equal([]byte(ticket), []byte(t.ticket(purpose, id))) {
		return fault.New(fault.Forbidden, "This is not an address that we have given out. Use it as it was given, whole.")
	}
	return nil
}
