package attachment

import (
	"context"
	"database/sql"
	"errors"
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

// OfAnother reports whether a message from a host names a file that this host has, or that came from another one: no host
// vouches for the files of others (MSG-101).
func (t *Attachments) OfAnother(ctx context.Context, host string, payload []byte) (bool, error) {
	named := Named(host, payload)
	if named == nil || len(named.IDs) == 0 {
		return false, nil
	}
	args := []any{host}
	for _, id := range named.IDs {
		args = append(args, id)
	}
	in := " IN (" + store.Marks(2, len(named.IDs)) + ")"
	var n int64
	err := t.core.DB.QueryRow(ctx, "SELECT (SELECT count(*) FROM mail_attachment WHERE id"+in+
		") + (SELECT count(*) FROM mail_attachment_away WHERE host <> $1 AND id"+in+")", args, &n)
	return n > 0, err
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

// isAway finds the host that has an attachment of a message that the agent got. A host could name the id of another
// host's file in a message of its own: only the message that was asked for counts or, without one, the first that came.
func (t *Attachments) isAway(ctx context.Context, who roster.Identity, id, message string) (host string, err error) {
	err = t.core.DB.QueryRow(ctx, "SELECT a.host FROM mail_attachment_away a JOIN mail_message m ON m.id = a.message WHERE "+
		"a.id = $1 AND m.recipient = $2 AND m.status <> 'quarantined' AND m.status <> 'rejected' AND ($3 = '' OR m.id = $3) "+
		"ORDER BY m.seq LIMIT 1", []any{id, who.ID, message}, &host)
	if errors.Is(err, sql.ErrNoRows) {
		return "", nil
	}
	return host, err
}

// unavailable is the error about a file on a host that does not answer.
func unavailable(err error, id, host string) error {
	return fault.Wrap(err, fault.HostUnavailable,
		"The attachment %s is on the host %s, which does not answer. Try again later.", id, host)
}

// statusAway asks the host that has a file for its state (MSG-101), without the URL there: whoever asks fetches it here.
func (t *Attachments) statusAway(ctx context.Context, host, id string) (s Status, err error) {
	body, err := wire.Marshal(Fetching{To: host, ID: id})
	if err != nil {
		return s, err
	}
	answer, err := t.options.Federation.CallHost(ctx, host, StatePath, body)
	if err != nil {
		return s, unavailable(err, id, host)
	}
	var told StateAway
	if err := wire.UnmarshalPart(answer, &told); err != nil {
		return s, unavailable(err, id, host)
	}
	if told.Refused != "" {
		return s, fault.New(told.Refused, "The host %s, which has the attachment %s, answers: %.300s", host, id, told.Reason)
	}
	told.Status.ID, told.Status.URL = id, ""
	return told.Status, nil
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
		return unavailable(err, id, host)
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

// AwayPath is the call by which a host fetches a file for the recipient of a message, and StatePath that by which it
// asks for the state of one.
const (
	AwayPath  = "/v1/mesh/attachment"
	StatePath = "/v1/mesh/attachment/state"
)

// Fetching is what another host fetches or asks for.
type Fetching struct {
	To string `json:"to" doc:"the id of the host that is asked" example:"host-a"`
	ID string `json:"id" doc:"the attachment" example:"att_1706648400_abc123"`
}

// StateAway is the answer to a host that asks for the state of a file: the state, or why there is none.
type StateAway struct {
	Status  Status     `json:"status,omitzero"`
	Refused fault.Code `json:"refused,omitzero"`
	Reason  string     `json:"reason,omitzero"`
}

// asks is the identity of another host that asks for a file by a call. Its queue stands where the id of the recipient
// stands otherwise, so it gets what a message with the file went to it for, and only with a proof.
func (t *Attachments) asks(call federation.HostCall, body []byte) (who roster.Identity, id string, err error) {
	var what Fetching
	proved, err := t.options.Federation.VerifyHost(call, body)
	if err == nil {
		err = wire.UnmarshalPart(body, &what)
	}
	if err != nil {
		return who, "", err
	}
	if !proved || what.To != t.options.Host {
		return who, "", fault.New(fault.Forbidden, "A host fetches attachments from the host that has them, with a proof.")
	}
	return roster.Identity{ID: federation.TargetHost(call.Host).Queue()}, what.ID, nil
}

// readAway reads a call of another host.
func (t *Attachments) readAway(w http.ResponseWriter, r *http.Request) (call federation.HostCall, body []byte, err error) {
	call = federation.ReadHostCall(r)
	if err := t.options.Federation.AdmitHost(call); err != nil {
		return call, nil, err
	}
	body, err = wire.Read(w, r, 1<<16)
	return call, body, err
}

// postAway sends a file to a host that a message with it was sent to.
func (t *Attachments) postAway(w http.ResponseWriter, r *http.Request) error {
	call, body, err := t.readAway(w, r)
	if err != nil {
		return err
	}
	f, err := t.fetchedBy(r.Context(), call, body)
	if err != nil {
		return err
	}
	return f.serve(w, r)
}

// fetchedBy opens the file that another host asks for.
func (t *Attachments) fetchedBy(ctx context.Context, call federation.HostCall, body []byte) (*file, error) {
	who, id, err := t.asks(call, body)
	if err != nil {
		return nil, err
	}
	return t.download(ctx, who, id)
}

// postState tells a host the state of a file that a message to it has.
func (t *Attachments) postState(w http.ResponseWriter, r *http.Request) error {
	call, body, err := t.readAway(w, r)
	if err != nil {
		return err
	}
	state, err := t.stateFor(r.Context(), call, body)
	if err != nil {
		return err
	}
	return t.options.Federation.AnswerHost(w, call, state)
}

// stateFor is the state of the file that another host asks for. That there is none is an answer, which it proves too.
func (t *Attachments) stateFor(ctx context.Context, call federation.HostCall, body []byte) (StateAway, error) {
	who, id, err := t.asks(call, body)
	if err != nil {
		return StateAway{}, err
	}
	a, err := t.findFor(ctx, who, id)
	if err == nil {
		err = a.expired(t.core.Now())
	}
	if e, is := errors.AsType[*fault.Error](err); is && e.Code.Status() < http.StatusInternalServerError {
		return StateAway{Refused: e.Code, Reason: e.Message}, nil
	}
	return StateAway{Status: t.status(a)}, err
}
