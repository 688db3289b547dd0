package attachment

import (
	"net/http"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// The limits of an agent, in calls a minute.
const (
	uploadsPerMinute = 20
	looksPerMinute   = 60
)

// UploadDocument is the body of POST /v1/attachments/upload, as /openapi.json describes it.
type UploadDocument struct {
	Filename    string `json:"filename" example:"report.pdf"`
	ContentType string `json:"content_type" example:"application/pdf"`
	Size        int64  `json:"size" doc:"in bytes" example:"10240"`
	Digest      string `json:"digest" doc:"sha256: and 64 hex digits"`
}

// Routes are the calls about attachments. The two with a ticket take no key, since the clients
// send none there.
func (t *Attachments) Routes() []wire.Route {
	ticket := []wire.Param{{Name: "token", Meaning: "the token of the signed URL"}}
	return []wire.Route{
		{
			Method: "POST", Path: "/v1/attachments/upload", Summary: "Announce a file; the answer says where to PUT it",
			Auth: wire.Agent, Rate: uploadsPerMinute, Request: UploadDocument{}, Answer: Announced{}, Status: 201,
			Handle: roster.AnswerBody(http.StatusCreated, amp.MaxBody, t.Announce),
		},
		{
			Method: "PUT", Path: "/v1/attachments/{id}/data", Summary: "Upload the file, once", Query: ticket,
			RequestMedia: "application/octet-stream", Handle: t.putData, Proof: []string{wire.Demanded},
		},
		{
			Method: "POST", Path: "/v1/attachments/{id}/confirm", Summary: "Scan an uploaded file", Auth: wire.Agent,
			Rate: uploadsPerMinute, Answer: Status{}, Handle: roster.AnswerAbout("id", t.Confirm),
		},
		{
			Method: "GET", Path: "/v1/attachments/{id}", Summary: "The state of an attachment, for its sender and its recipient",
			Auth: wire.Agent, Rate: looksPerMinute, Answer: Status{}, Handle: roster.AnswerAbout("id", t.Status),
		},
		{
			Method: "GET", Path: "/v1/attachments/{id}/download", Summary: "Download a file, as its sender or recipient",
			Auth: wire.Agent, Rate: amp.RequestsPerMinute, Media: "application/octet-stream", Handle: t.getDownload,
			Query: []wire.Param{{
				Name:    "message",
				Meaning: "the message that has it: a file of another host is fetched from the host of that message",
			}},
		},
		{
			Method: "GET", Path: "/v1/attachments/{id}/file", Summary: "Download a file by its signed URL", Query: ticket,
			Media: "application/octet-stream", Handle: t.getFile, Proof: []string{wire.Demanded},
		},
		{
			Method: "POST", Path: AwayPath, Summary: "Another host of this provider fetches a file for the recipient",
			Request: Fetching{}, Media: "application/octet-stream", Handle: t.postAway,
			Proof: []string{federation.ProofHeader},
		},
		{
			Method: "POST", Path: StatePath, Summary: "Another host of this provider asks for the state of a file, for the recipient",
			Request: Fetching{}, Answer: StateAway{}, Handle: t.postState, Proof: []string{federation.ProofHeader},
		},
	}
}

// putData accepts the bytes. MSG-68: it answers 200, since the bash clients take 204 for a failure.
// One byte more than the limit is read, so that a file that is too large is noticed.
func (t *Attachments) putData(w http.ResponseWriter, r *http.Request) error {
	if err := t.checkTicket(forUpload, r.PathValue("id"), r.URL.Query().Get("token")); err != nil {
		return err
	}
	if err := t.Upload(r.Context(), r.PathValue("id"), http.MaxBytesReader(w, r.Body, MaxSize+MaxSize/100+1)); err != nil {
		return err
	}
	return wire.Reply(w, http.StatusOK, map[string]bool{"uploaded": true})
}

// getDownload serves the bytes itself. MSG-75: a redirect would be a failure for the bash clients.
func (t *Attachments) getDownload(w http.ResponseWriter, r *http.Request) error {
	who, id := roster.From(r.Context()), r.PathValue("id")
	f, err := t.download(r.Context(), who, id)
	if fault.Is(err, fault.AttachmentNotFound) {
		host, err := t.isAway(r.Context(), who, id, r.URL.Query().Get("message"))
		if err != nil {
			return err
		}
		if host != "" {
			return t.serveAway(w, r, host, id)
		}
	}
	if err != nil {
		return err
	}
	return f.serve(w, r)
}

// getFile serves the bytes to whoever has the signed URL.
func (t *Attachments) getFile(w http.ResponseWriter, r *http.Request) error {
	f, err := t.shared(r.Context(), r.PathValue("id"), r.URL.Query().Get("token"))
	if err != nil {
		return err
	}
	return f.serve(w, r)
}

// serve sends the bytes or a range of them, and closes the file. The headers make a browser save
// the file under its clean name and never show it.
func (f *file) serve(w http.ResponseWriter, r *http.Request) error {
	defer func() { _ = f.Close() }()
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	// SafeFilename leaves nothing in the name that would need escaping. Names that were recorded before it
	// have its form now.
	h.Set("Content-Disposition", `attachment; filename="`+amp.SafeFilename(f.filename)+`"`)
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'") // for whoever opens it all the same
	h.Set("ETag", `"`+strings.TrimPrefix(f.digest, "sha256:")+`"`)
	h.Set("Cache-Control", "private, immutable, max-age=604800")
	h.Set("Access-Control-Allow-Origin", "*")
	http.ServeContent(w, r, "", time.UnixMicro(f.uploadedAt), f)
	return nil
}
