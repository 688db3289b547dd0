package mailbox

import (
	"bufio"
	"context"
	"encoding/json" // the folder is shared with clients that write what wire would refuse
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// Fetching is what to fetch, and how.
type Fetching struct {
	Provider string        // only from this provider or address, "" for all
	Keep     bool          // do not acknowledge: the next fetch gets the same messages
	Wait     time.Duration // how long the first provider may hold the call until there is mail
}

// Fetched is the result of a fetch. New messages are on disk. Refused and Failed are no errors of
// the fetch as long as something was fetched.
type Fetched struct {
	New     []Message // in the order of the providers' queues, oldest first
	Known   int       // messages that were fetched before
	Refused []string  // reasons for messages that cannot be stored; they stay with the provider
	Failed  []error   // one for each provider that could not be polled to the end
}

// Fetch polls every provider, or one, stores new messages and acknowledges them. A provider that
// fails does not keep the others from being polled; the error is returned if nothing was fetched.
func (b *Box) Fetch(ctx context.Context, f Fetching) (Fetched, error) {
	var out Fetched
	// An agent without an address, or a provider that it does not have, is a mistake of the caller.
	if _, err := b.registration(f.Provider, ""); err != nil {
		return out, err
	}
	for i := range b.Registrations {
		r := &b.Registrations[i]
		if f.Provider != "" && !strings.EqualFold(f.Provider, r.Provider) && !strings.EqualFold(f.Provider, r.Address) {
			continue
		}
		if err := b.fetchFrom(ctx, r, f, &out); err != nil {
			out.Failed = append(out.Failed, err)
		}
		f.Wait = 0
	}
	if len(out.Failed) > 0 && len(out.New) == 0 {
		return out, out.Failed[0]
	}
	return out, nil
}

// One Fetch reads at most maxPages pages, so that a provider which never runs out of messages
// cannot hold it for ever; the next Fetch goes on.
const (
	pageSize = 100
	maxPages = 100
)

// fetchFrom polls one provider, page after page. It uses no cursor, which not every provider has:
// acknowledged messages leave the queue, so the next page begins behind them. It ends when a page
// has nothing that was not acknowledged before.
func (b *Box) fetchFrom(ctx context.Context, r *Registration, f Fetching, out *Fetched) error {
	// acked keeps a provider that ignores acknowledgements from being asked again and again.
	as, acked := newCaller(r.apiKey), map[string]bool{}
	for range maxPages {
		query := url.Values{"limit": {strconv.Itoa(pageSize)}}
		if f.Wait > 0 {
			query.Set("wait", strconv.Itoa(int(f.Wait.Seconds())))
		}
		var page struct{ Messages []object }
		if err := as.call(ctx, http.MethodGet, r.APIURL+"/messages/pending?"+query.Encode(), nil, &page); err != nil {
			return err
		}
		taken, err := b.storePage(ctx, page.Messages, r, out)
		if err != nil {
			return err
		}
		// Only ids that are on disk are acknowledged, and each once in this fetch.
		var fresh []string
		for _, id := range taken {
			if !f.Keep && !acked[id] {
				acked[id] = true
				fresh = append(fresh, id)
			}
		}
		if len(fresh) == 0 { // nothing waits, or only what does not go away
			return nil
		}
		if err := ack(ctx, as, r, fresh); err != nil {
			return err
		}
		f.Wait = 0 // only the first page is worth waiting for
	}
	return nil
}

// storePage stores the messages of a page, and returns the ids that may be acknowledged: those that
// are on disk now. It holds the lock and reads what is known under it, so that two commands that
// fetch at once do not store a message twice.
func (b *Box) storePage(ctx context.Context, page []object, r *Registration, out *Fetched) (ids []string, err error) {
	if len(page) == 0 {
		return nil, nil
	}
	unlock, err := lock(b.Dir)
	if err != nil {
		return nil, err
	}
	defer unlock()
	seen, err := b.readSeen()
	if err != nil {
		return nil, err
	}
	known, err := b.readKnown()
	if err != nil {
		return nil, err
	}
	// assess adds senders and offered keys to known; the file is written only if it did.
	had := maps.Clone(known)
	for _, o := range page {
		id, err := b.storeFetched(ctx, o, r, seen, known, out)
		if err != nil {
			return nil, err
		}
		if id != "" {
			ids = append(ids, id)
		}
	}
	if !maps.Equal(had, known) {
		err = writeJSON(b.knownFile(), known, 0o600)
	}
	return ids, err
}

// ack acknowledges messages: all in one call, which counts once against the provider's limit, or
// one by one in the two forms of providers that do not know it (MSG-58).
func ack(ctx context.Context, as *caller, r *Registration, ids []string) error {
	pending := r.APIURL + "/messages/pending"
	// The form of the document first.
	err := as.call(ctx, http.MethodPost, pending+"/ack", map[string][]string{"ids": ids}, nil)
	if !isUnknown(err) {
		return err
	}
	for _, id := range ids {
		if err = as.call(ctx, http.MethodDelete, pending+"/"+id, nil, nil); isUnknown(err) {
			err = as.call(ctx, http.MethodDelete, pending+"?id="+id, nil, nil)
		}
		if err != nil && !isUnknown(err) {
			return err
		}
	}
	return nil
}

// isUnknown reports whether an error means that the provider has no such call or no such message.
func isUnknown(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// storeFetched stores one message and returns its id, "" if it cannot be stored and stays with the provider.
// A message that was fetched before is acknowledged again: the first acknowledgement may be lost.
func (b *Box) storeFetched(ctx context.Context, o object, r *Registration, seen map[string]bool,
	known map[string]knownSender, out *Fetched,
) (string, error) {
	m, err := asMessage(o, "")
	// Some providers put the id beside the envelope only.
	if m.Envelope.ID == "" {
		m.Envelope.ID = o.text("id")
	}
	id := m.Envelope.ID
	switch {
	case !amp.IDForm.MatchString(id): // it would become the name of a file
		out.Refused = append(out.Refused,
			fmt.Sprintf("a message of %s has the id %.80q, which cannot be used", r.Provider, oneLine(id, 80)))
		return "", nil
	case err != nil:
		out.Refused = append(out.Refused,
			fmt.Sprintf("%s of %s is not a message: %s", id, r.Provider, oneLine(err.Error(), 200)))
		return "", nil
	case seen[id]:
		out.Known++
		return id, nil
	}
	// o is the file that will be written: the provider's object with our members added, and the
	// payload untouched.
	m.Security, m.From = b.assess(ctx, &m, o.text("sender_public_key"), r, known), r.Provider
	// The bash clients keep the state in metadata.status or local.status, depending on their age.
	local, metadata := o.part("local"), o.part("metadata")
	for name, value := range map[string]any{
		"received_at": b.stamp(), "status": unread, "fetched_from": r.Provider, "delivery_method": "relay",
		"signature_verified": m.Security.Trust != Untrusted, "security": m.Security,
	} {
		local.set(value, name)
	}
	metadata.set(unread, "status")
	o.set(local, "local")
	o.set(metadata, "metadata")
	o.set(id, "id")
	if err := b.store(&m); err != nil {
		return "", err
	}
	seen[id] = true
	out.New = append(out.New, m)
	return id, nil
}

// store writes a message, and then its id to replay_db. In this order a crash between the two leads
// to the same message being written again, never to a lost one.
func (b *Box) store(m *Message) error {
	m.path = b.messageFile(Inbox, m.Envelope.From, m.Envelope.ID)
	text, err := encode(m.file, "  ")
	if err != nil {
		return err
	}
	// The file may exist: from a crash before its id was recorded, or from another client. Messages do
	// not change, so the one that is there is right.
	if err := createFile(m.path, text, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return b.recordSeen(m.Envelope.ID)
}

// remembered is how long ids stay in replay_db, a file of lines "id|unix seconds" that the bash
// clients use too. A message waits for a week at most; its id is kept for longer.
const remembered = 8 * 24 * time.Hour

func (b *Box) seenFile() string { return filepath.Join(b.Dir, "replay_db") }

// recordSeen appends an id to replay_db and waits until it is on disk.
func (b *Box) recordSeen(id string) error {
	f, err := os.OpenFile(b.seenFile(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return unwritable(err, b.seenFile())
	}
	_, err = fmt.Fprintf(f, "%s|%d\n", id, b.now().Unix())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return unwritable(err, b.seenFile())
	}
	return nil
}

// readSeen is the set of ids that were fetched before: those of replay_db, from which it removes old
// lines, and those of the messages in the folder, which other clients may have fetched. The caller
// holds the lock.
//
// A message that was removed from the folder is found in replay_db, and not fetched again.
func (b *Box) readSeen() (map[string]bool, error) {
	seen := map[string]bool{}
	messages, _, err := b.List(Inbox)
	if err != nil {
		return nil, err
	}
	for i := range messages {
		seen[messages[i].Envelope.ID] = true
	}
	f, err := os.Open(b.seenFile())
	if errors.Is(err, fs.ErrNotExist) {
		return seen, nil
	}
	if err != nil {
		return nil, unreadable(err, b.seenFile())
	}
	defer func() { _ = f.Close() }()
	var kept strings.Builder
	old := 0
	// The file is read as a whole for every page; it has a week of ids at most.
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		id, at, _ := strings.Cut(lines.Text(), "|")
		seconds, err := strconv.ParseInt(at, 10, 64)
		// A line that is no id and time is dropped like an old one: other clients append to the file too.
		if err != nil || b.now().Sub(time.Unix(seconds, 0)) > remembered {
			old++
			continue
		}
		seen[id] = true
		fmt.Fprintln(&kept, lines.Text())
	}
	if err := lines.Err(); err != nil {
		return nil, unreadable(err, b.seenFile())
	}
	if old > 0 {
		return seen, writeFile(b.seenFile(), []byte(kept.String()), 0o600)
	}
	return seen, nil
}

// SendReceipt sends a read receipt for a message through its provider.
func (b *Box) SendReceipt(ctx context.Context, m *Message) error {
	r, err := b.registrationOf(m)
	if err != nil {
		return err
	}
	return newCaller(r.apiKey).call(ctx, http.MethodPost, r.APIURL+"/messages/"+m.Envelope.ID+"/read", nil, nil)
}

// Waiting is how many messages wait with a provider, asked without fetching more than one of them:
// not every provider has a call for the count.
func (b *Box) Waiting(ctx context.Context, r *Registration) (int, error) {
	var page struct {
		Count     int               `json:"count"`
		Remaining int               `json:"remaining"`
		Messages  []json.RawMessage `json:"messages"`
	}
	err := newCaller(r.apiKey).call(ctx, http.MethodGet, r.APIURL+"/messages/pending?limit=1", nil, &page)
	if err != nil {
		return 0, err
	}
	// A negative count would make the sum below look like an empty queue.
	if page.Remaining < 0 {
		return 0, fault.New(fault.Internal, "%s returned a negative number of messages, %d.", r.Provider, page.Remaining)
	}
	return len(page.Messages) + page.Remaining, nil
}
