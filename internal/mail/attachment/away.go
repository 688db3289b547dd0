package attachment

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/federation"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// The files of a message from another host of the mesh stay there. An agent fetches them through its own host, which
// asks the other one (MSG-101): it may not reach the other host, and has no reason to call an address in a message.

// Away says on which host the attachments of a message are.
type Away struct {
	Host string   `json:"host"`
	IDs  []string `json:"ids"`
}

// AwayMigration is the step of package mail that makes the table of files on other hosts.
const AwayMigration = `
CREATE TABLE mail_attachment_away (
  id {text} NOT NULL,
  message {text} NOT NULL,
  host {text} NOT NULL,
  PRIMARY KEY (id, message)
) {keyed};
`

// Named are the attachments that the payload of a message from a host names, nil for none, and for a payload whose
// list cannot be read.
func Named(host string, payload []byte) *Away {
	found, err := readReferences(payload, false)
	if err != nil || len(found) == 0 || len(found) > MaxCount {
		return nil
	}
	away := &Away{Host: host}
	for _, a := range found {
		if a.storage == "" && idForm.MatchString(a.ID) {
			away.IDs = append(away.IDs, a.ID)
		}
	}
	return away
}

// Speak puts a message into the words of a client that knows us by another domain and leaves the verifying to us: one that
// polls at an address with that domain (MSG-113). files are those of the payload, as its recipient gets them, and ids those
// that this server has.
func Speak(uri string, domains amp.Domains, m *amp.Message, files []amp.Attachment, ids []string) {
	domain := amp.SpokenDomain(uri) // of the address as it was called, before it was made ours
	if domain == "" {
		return
	}
	m.Envelope.From = domains.Spelled(m.Envelope.From, domain)
	if near, err := nearby(m.Payload, files, ids); err == nil { // it was read before it was stored
		m.Payload = near
	}
}

// nearby is a payload without the URLs of files that are on other hosts. A client that reads nothing but the payload then
// asks its own host (MSG-101).
func nearby(payload wire.Raw, files []amp.Attachment, ids []string) (wire.Raw, error) {
	away := func(f amp.Attachment) bool { return f.ScanStatus != amp.Unverified && !slices.Contains(ids, f.ID) }
	if !slices.ContainsFunc(files, away) {
		return payload, nil
	}
	all, err := wire.Members(payload)
	if err != nil {
		return nil, err
	}
	var items []wire.Raw
	if err := wire.Unmarshal(all["attachments"], &items); err != nil {
		return nil, err
	}
	for i := range min(len(items), len(files)) {
		if !away(files[i]) {
			continue
		}
		one, err := wire.Members(items[i])
		if err != nil {
			return nil, err
		}
		one["url"], one["download_url"] = wire.Raw("null"), wire.Raw("null")
		if items[i], err = wire.Marshal(one); err != nil {
			return nil, err
		}
	}
	if all["attachments"], err = wire.Marshal(items); err != nil {
		return nil, err
	}
	return wire.Marshal(all)
}

// Carried notes where the attachments of a message are. An apply function calls it.
func Carried(tx *store.Tx, message string, away *Away) {
	if away == nil {
		return
	}
	for _, id := range away.IDs {
		tx.Exec("INSERT INTO mail_attachment_away (id, message, host) VALUES ($1, $2, $3) ON CONFLICT (id, message) DO NOTHING",
			id, message, away.Host)
	}
}

// carried is a message that was delivered with an attachment, and the host that has the file.
type carried struct{ message, host string }

// isAway finds the host that has an attachment of a message that the agent got.
func (t *Attachments) isAway(ctx context.Context, who roster.Identity, id string) (host string, err error) {
	all, err := store.All(t.core.DB.Reading(ctx), func(scan store.Scan) (c carried, err error) {
		return c, scan(&c.message, &c.host)
	}, "SELECT message, host FROM mail_attachment_away WHERE id = $1 ORDER BY message LIMIT 100", id)
	for _, c := range all {
		got, err := t.options.Received(ctx, who.ID, c.message)
		if err != nil || got {
			return c.host, err
		}
	}
	return "", err
}

// serveAway passes on a file of another host. Its bytes are checked by the recipient, with the digest that the message
// has; a type and a name are not taken from the other host.
func (t *Attachments) serveAway(w http.ResponseWriter, r *http.Request, host, id string) error {
	body, err := wire.Marshal(Fetching{To: host, ID: id})
	if err != nil {
		return err
	}
	res, err := t.options.Federation.OpenHost(r.Context(), host, AwayPath, body)
	if err != nil {
		return fault.Wrap(err, fault.HostUnavailable,
			"The attachment %s is on the host %s, which does not answer. Try again later.", id, host)
	}
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(io.LimitReader(res.Body, 1000)) // the status has decided
		return fault.New(fault.AttachmentNotFound, "The host %s does not have the attachment %s any more: %d %q", host, id,
			res.StatusCode, answer)
	}
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="`+id+`"`)
	h.Set("Cache-Control", "private, no-store")
	if res.ContentLength >= 0 && res.ContentLength <= MaxSize {
		h.Set("Content-Length", strconv.FormatInt(res.ContentLength, 10))
	}
	_, _ = io.Copy(w, io.LimitReader(res.Body, MaxSize)) // what is missing is found by the digest
	return nil
}

// AwayPath is the call by which a host fetches a file for the recipient of a message.
const AwayPath = "/v1/mesh/attachment"

// Fetching is what another host fetches.
type Fetching struct {
	To string `json:"to" doc:"the id of the host that is asked" example:"host-a"`
	ID string `json:"id" doc:"the attachment" example:"att_1706648400_abc123"`
}

// postAway sends a file to a host that a message with it was sent to.
func (t *Attachments) postAway(w http.ResponseWriter, r *http.Request) error {
	call := federation.ReadHostCall(r)
	if err := t.options.Federation.AdmitHost(call); err != nil {
		return err
	}
	body, err := wire.Read(w, r, 1<<16)
	if err != nil {
		return err
	}
	var what Fetching
	proved, err := t.options.Federation.VerifyHost(call, body)
	if err == nil {
		err = wire.UnmarshalPart(body, &what)
	}
	if err != nil {
		return err
	}
	if !proved || what.To != t.options.Host {
		return fault.New(fault.Forbidden, "A host fetches attachments from the host that has them, with a proof.")
	}
	// Its queue stands where the id of the recipient stands otherwise.
	f, err := t.download(r.Context(), roster.Identity{ID: federation.TargetHost(call.Host).Queue()}, what.ID)
	if err != nil {
		return err
	}
	return f.serve(w, r)
}
