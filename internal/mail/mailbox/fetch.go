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

// Fetching says what to fetch.
type Fetching struct {
	Provider string        // only from this one
	Keep     bool          // leave it with the provider
	Wait     time.Duration // for the first message, with the first provider
}

// Fetched is what a fetch has brought.
type Fetched struct {
	New     []Message
	Known   int      // that were fetched before
	Refused []string // why, for those that cannot be kept
	Failed  []error  // one for each provider that could not be asked
}

// Fetch gets the mail that waits with every provider.
func (b *Box) Fetch(ctx context.Context, f Fetching) (Fetched, error) {
	var out Fetched
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

const (
	pageSize = 100
	maxPages = 100 // of one call; the next goes on
)

// fetchFrom reads page after page. What was taken is acknowledged, so that the next page
// begins behind it.
func (b *Box) fetchFrom(ctx context.Context, r *Registration, f Fetching, out *Fetched) error {
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
		taken, err := b.takeAll(ctx, page.Messages, r, out)
		if err != nil {
			return err
		}
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
		f.Wait = 0
	}
	return nil
}

// takeAll keeps the messages of a page, and returns the ids of those that are safe on disk.
// Another command may fetch at the same time: what it has taken is not taken twice.
func (b *Box) takeAll(ctx context.Context, page []object, r *Registration, out *Fetched) (ids []string, err error) {
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
	had := maps.Clone(known)
	for _, o := range page {
		id, err := b.take(ctx, o, r, seen, known, out)
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

// ack lets the provider forget messages: all at once, which counts as one call against
// its limits, or one by one in the two forms that others have.
func ack(ctx context.Context, as *caller, r *Registration, ids []string) error {
	pending := r.APIURL + "/messages/pending"
	err := as.call(ctx, http.MethodPost, pending+"/ack", map[string][]string{"ids": ids}, nil)
	if !unknown(err) {
		return err
	}
	for _, id := range ids {
		if err = as.call(ctx, http.MethodDelete, pending+"/"+id, nil, nil); unknown(err) {
			err = as.call(ctx, http.MethodDelete, pending+"?id="+id, nil, nil)
		}
		if err != nil && !unknown(err) {
			return err
		}
	}
	return nil
}

// unknown reports whether the provider has no such call, or no such message.
func unknown(err error) bool {
	status := statusOf(err)
	return status == http.StatusNotFound || status == http.StatusMethodNotAllowed
}

// take keeps a message, and returns its id when it is safe on disk. One that cannot be
// kept stays with the provider.
func (b *Box) take(ctx context.Context, o object, r *Registration, seen map[string]bool, known map[string]knownSender,
	out *Fetched,
) (string, error) {
	m, err := asMessage(o, "")
	if m.Envelope.ID == "" {
		m.Envelope.ID = o.text("id")
	}
	id := m.Envelope.ID
	switch {
	case !amp.IDForm.MatchString(id):
		out.Refused = append(out.Refused,
			fmt.Sprintf("a message of %s has the id %.80q, which cannot be used", r.Provider, plain(id, 80)))
		return "", nil
	case err != nil:
		out.Refused = append(out.Refused,
			fmt.Sprintf("%s of %s is not a message: %s", id, r.Provider, plain(err.Error(), 200)))
		return "", nil
	case seen[id]:
		out.Known++
		return id, nil
	}
	m.Security, m.From = b.judge(ctx, &m, o.text("sender_public_key"), r, known), r.Provider
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

// store writes a message, and then remembers that it came.
func (b *Box) store(m *Message) error {
	m.path = b.messageFile(Inbox, m.Envelope.From, m.Envelope.ID)
	text, err := encode(m.file, "  ")
	if err != nil {
		return err
	}
	if err := createFile(m.path, text, 0o600); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return b.remember(m.Envelope.ID)
}

// The replay database is a file of lines id|seconds, which shell clients keep too. A
// message may wait for a week; its id is kept for longer.
const remembered = 8 * 24 * time.Hour

func (b *Box) seenFile() string { return filepath.Join(b.Dir, "replay_db") }

func (b *Box) remember(id string) error {
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

// readSeen reads the ids that came before: those of the database, whose old lines it
// drops, and those of the messages that are there.
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
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		id, at, _ := strings.Cut(lines.Text(), "|")
		seconds, err := strconv.ParseInt(at, 10, 64)
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

// SendReceipt tells the sender that a message was read.
func (b *Box) SendReceipt(ctx context.Context, m *Message) error {
	r, err := b.through(m)
	if err != nil {
		return err
	}
	return newCaller(r.apiKey).call(ctx, http.MethodPost, r.APIURL+"/messages/"+m.Envelope.ID+"/read", nil, nil)
}

// Waiting is how many messages wait with a provider.
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
	if page.Remaining < 0 {
		return 0, fault.New(fault.Internal, "%s counts %d messages.", r.Provider, page.Remaining)
	}
	return len(page.Messages) + page.Remaining, nil
}
