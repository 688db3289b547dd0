package mail

import (
	"crypto/hmac"
	"errors"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/directory"
	"signalbox/internal/mail/inspect"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The answers about attachments.
type (
	// Announced is where to upload.
	Announced struct {
		ID        string            `json:"attachment_id"`
		UploadURL string            `json:"upload_url"`
		Method    string            `json:"upload_method"`
		Headers   map[string]string `json:"upload_headers"`
		ExpiresIn int64             `json:"expires_in"`
	}
	// AttachmentStatus is how an attachment is.
	AttachmentStatus struct {
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
)

// The limits of attachment calls, a minute.
const (
	uploadsPerMinute = 20
	looksPerMinute   = 60
)

// attachmentRoutes are the calls about attachments. Those with a ticket take no key.
func (m *Mail) attachmentRoutes() []wire.Route {
	ticket := []wire.Param{{Name: "token", Meaning: "as it stands in the address that was given"}}
	return []wire.Route{
		{Method: "POST", Path: "/v1/attachments/upload", Summary: "Announce a file; the answer says where to PUT it", Auth: wire.Agent, Rate: uploadsPerMinute, RequestMedia: "application/json", Answer: Announced{}, Status: 201, Handle: m.postUpload},
		{Method: "PUT", Path: "/v1/attachments/{id}/data", Summary: "Upload the file, once", Query: ticket, RequestMedia: "application/octet-stream", Handle: m.putData},
		{Method: "POST", Path: "/v1/attachments/{id}/confirm", Summary: "Have the file scanned", Auth: wire.Agent, Rate: uploadsPerMinute, Answer: AttachmentStatus{}, Handle: m.postConfirm},
		{Method: "GET", Path: "/v1/attachments/{id}", Summary: "How an attachment is", Auth: wire.Agent, Rate: looksPerMinute, Answer: AttachmentStatus{}, Handle: m.getAttachment},
		{Method: "GET", Path: "/v1/attachments/{id}/download", Summary: "The file, for its sender and its recipient", Auth: wire.Agent, Rate: amp.RequestsPerMinute, Media: "application/octet-stream", Handle: m.getDownload},
		{Method: "GET", Path: "/v1/attachments/{id}/file", Summary: "The file, for who has the address", Query: ticket, Media: "application/octet-stream", Handle: m.getFile},
	}
}

func (m *Mail) postUpload(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	if err := directory.Active(who); err != nil {
		return err
	}
	body, err := wire.Read(w, r, amp.MaxBody)
	if err != nil {
		return err
	}
	id, a, err := m.announce(r.Context(), who, body)
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusCreated, Announced{
		ID: id, UploadURL: amp.Endpoint(m.core.BaseURL) + "/attachments/" + id + "/data?token=" + m.ticket("upload", id), Method: http.MethodPut,
		Headers: map[string]string{"Content-Type": a.ContentType}, ExpiresIn: int64(uploadTime / time.Second),
	})
}

// hasTicket checks that we have given out the address.
func (m *Mail) hasTicket(r *http.Request, purpose string) error {
	if !hmac.Equal([]byte(r.URL.Query().Get("token")), []byte(m.ticket(purpose, r.PathValue("id")))) {
		return fault.New(fault.Forbidden, "This is not an address that we have given out. Use it as it was given, whole.")
	}
	return nil
}

func (m *Mail) putData(w http.ResponseWriter, r *http.Request) error {
	if err := m.hasTicket(r, "upload"); err != nil {
		return err
	}
	if err := m.Upload(r.Context(), r.PathValue("id"), http.MaxBytesReader(w, r.Body, maxAttachment+maxAttachment/100+1)); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, map[string]bool{"uploaded": true})
}

func (m *Mail) status(a attachment) AttachmentStatus {
	s := AttachmentStatus{ID: a.id, Filename: a.filename, ContentType: a.contentType, Size: a.size, Digest: a.digest, ScanStatus: a.scanStatus(), ScanNote: a.note, ExpiresAt: amp.Stamp(time.UnixMicro(a.expiresAt))}
	if a.uploadedAt > 0 {
		s.UploadedAt = amp.Stamp(time.UnixMicro(a.uploadedAt))
	}
	if a.status == inspect.Clean || a.status == inspect.Suspicious {
		s.URL = m.fileURL(a.id)
	}
	return s
}

func (m *Mail) postConfirm(w http.ResponseWriter, r *http.Request) error {
	a, err := m.confirm(r.Context(), roster.From(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, m.status(a))
}

func (m *Mail) getAttachment(w http.ResponseWriter, r *http.Request) error {
	a, err := m.own(r.Context(), roster.From(r.Context()), r.PathValue("id"))
	if err == nil {
		err = a.expired(m.core.Now())
	}
	if err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, m.status(a))
}

// getDownload is for the sender, and for the recipient of the message.
func (m *Mail) getDownload(w http.ResponseWriter, r *http.Request) error {
	who := roster.From(r.Context())
	a, err := m.attachment(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if a.agent != who.ID {
		var n int64
		if err := m.core.DB.QueryRow(r.Context(), "SELECT count(*) FROM mail_message WHERE id = $1 AND recipient = $2 AND status <> 'quarantined' AND status <> 'rejected'", []any{a.message, who.ID}, &n); err != nil {
			return err
		}
		if n == 0 {
			return noAttachment(a.id)
		}
	}
	return m.serveFile(w, r, a)
}

func (m *Mail) getFile(w http.ResponseWriter, r *http.Request) error {
	if err := m.hasTicket(r, "download"); err != nil {
		return err
	}
	a, err := m.attachment(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	return m.serveFile(w, r, a)
}

// serveFile sends the bytes, or a range of them.
func (m *Mail) serveFile(w http.ResponseWriter, r *http.Request, a attachment) error {
	if err := a.expired(m.core.Now()); err != nil {
		return err
	}
	switch {
	case a.scanStatus() == "pending":
		return fault.New(fault.AttachmentPending, "The attachment %s is not scanned yet.", a.id)
	case a.status == inspect.Rejected:
		return fault.New(fault.AttachmentRejected, "The attachment %s did not pass the scan, and is not kept.", a.id)
	}
	file, err := m.Blobs.Get(r.Context(), a.blob)
	if errors.Is(err, fs.ErrNotExist) {
		return fault.Wrap(err, fault.AttachmentExpired, "The attachment %s is not there any more.", a.id)
	}
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	h := w.Header()
	h.Set("Content-Type", a.contentType)
	h.Set("Content-Disposition", `attachment; filename="`+a.filename+`"`) // a clean name, in the quotes that clients look for
	h.Set("ETag", `"`+strings.TrimPrefix(a.digest, "sha256:")+`"`)
	h.Set("Cache-Control", "private, immutable, max-age=604800")
	h.Set("Access-Control-Allow-Origin", "*")
	http.ServeContent(w, r, "", time.UnixMicro(a.uploadedAt), file)
	return nil
}
