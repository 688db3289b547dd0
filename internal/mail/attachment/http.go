package attachment

import (
	"net/http"
	"strings"
	"time"

	"signalbox/internal/mail/amp"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The limits of the calls, a minute.
const (
	uploadsPerMinute = 20
	looksPerMinute   = 60
)

// Routes are the calls about attachments. Those with a ticket take no key.
func (t *Attachments) Routes() []wire.Route {
	ticket := []wire.Param{{Name: "token", Meaning: "as it stands in the address that was given"}}
	return []wire.Route{
		{
			Method: "POST", Path: "/v1/attachments/upload", Summary: "Announce a file; the answer says where to PUT it",
			Auth: wire.Agent, Rate: uploadsPerMinute, RequestMedia: "application/json", Answer: Announced{}, Status: 201,
			Handle: roster.AnswerBody(http.StatusCreated, amp.MaxBody, t.Announce),
		},
		{
			Method: "PUT", Path: "/v1/attachments/{id}/data", Summary: "Upload the file, once", Query: ticket,
			RequestMedia: "application/octet-stream", Handle: t.putData,
		},
		{
			Method: "POST", Path: "/v1/attachments/{id}/confirm", Summary: "Have the file scanned", Auth: wire.Agent,
			Rate: uploadsPerMinute, Answer: Status{}, Handle: roster.AnswerAbout("id", t.Confirm),
		},
		{
			Method: "GET", Path: "/v1/attachments/{id}", Summary: "How an attachment is", Auth: wire.Agent, Rate: looksPerMinute,
			Answer: Status{}, Handle: roster.AnswerAbout("id", t.Status),
		},
		{
			Method: "GET", Path: "/v1/attachments/{id}/download", Summary: "The file, for its sender and its recipient",
			Auth: wire.Agent, Rate: amp.RequestsPerMinute, Media: "application/octet-stream", Handle: t.getDownload,
		},
		{
			Method: "GET", Path: "/v1/attachments/{id}/file", Summary: "The file, for who has the address", Query: ticket,
			Media: "application/octet-stream", Handle: t.getFile,
		},
	}
}

func (t *Attachments) putData(w http.ResponseWriter, r *http.Request) error {
	if err := t.checkTicket(forUpload, r.PathValue("id"), r.URL.Query().Get("token")); err != nil {
		return err
	}
	if err := t.Upload(r.Context(), r.PathValue("id"), http.MaxBytesReader(w, r.Body, MaxSize+MaxSize/100+1)); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, map[string]bool{"uploaded": true})
}

func (t *Attachments) getDownload(w http.ResponseWriter, r *http.Request) error {
	f, err := t.download(r.Context(), roster.From(r.Context()), r.PathValue("id"))
	if err != nil {
		return err
	}
	return f.serve(w, r)
}

func (t *Attachments) getFile(w http.ResponseWriter, r *http.Request) error {
	f, err := t.shared(r.Context(), r.PathValue("id"), r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	return f.serve(w, r)
}

// serve sends the bytes, or a range of them.
func (f *file) serve(w http.ResponseWriter, r *http.Request) error {
	defer func() { _ = f.Close() }()
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	// a clean name, in the quotes that clients look for
	h.Set("Content-Disposition", `attachment; filename="`+f.filename+`"`)
	h.Set("ETag", `"`+strings.TrimPrefix(f.digest, "sha256:")+`"`)
	h.Set("Cache-Control", "private, immutable, max-age=604800")
	h.Set("Access-Control-Allow-Origin", "*")
	http.ServeContent(w, r, "", time.UnixMicro(f.uploadedAt), f)
	return nil
}
