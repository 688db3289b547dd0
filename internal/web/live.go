package web

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// partHeader marks a request by the script for a page that is open already.
const partHeader = "X-Relay-Refresh"

const (
	// liveEvery is the least time between two events on a connection. The first change is sent at
	// once. Changes that follow are sent together, soon enough to be on screen within 150 ms.
	liveEvery = 60 * time.Millisecond
	// livePace makes that time longer with each open page: every event has a page rendered, and all
	// of them together should not take a processor. With 200 open pages each is refreshed at most
	// every two seconds.
	livePace = 10 * time.Millisecond
)

// hub notifies open pages of changes. It follows the ledger once, however many pages are open.
type hub struct {
	// mu guards both fields. It is taken before a watcher's own lock, never after it.
	mu       sync.Mutex
	watchers map[*watcher]struct{}
	told     int64 // the last entry that watchers were told of
}

// watcher is one open page. Changes are merged until the page is ready for the next event, so a
// slow browser costs no memory.
type watcher struct {
	nouns     []string
	workspace string // "" sees all

	mu      sync.Mutex
	changed map[string]bool // nouns it has not been told of
	woken   chan struct{}
}

// change is an entry about something, somewhere.
type change struct{ noun, workspace string }

// run follows the ledger from its end until ctx ends. Nothing is missed between a page's load and
// its first event: the page says which entry it has seen, and the script compares.
func (h *hub) run(ctx context.Context, l *ledger.Ledger) error {
	for ctx.Err() == nil {
		head, err := l.Head(ctx)
		if err != nil { // the ledger says itself when it cannot be read
			ledger.Pause(ctx, nil, time.Second)
			continue
		}
		// FollowPages ends when the ledger cannot be read; then start again from its end.
		for entries := range l.FollowPages(ctx, head) {
			h.notify(entries)
		}
	}
	return nil
}

// notify passes the changes of a page of entries to every watcher that wants them.
func (h *hub) notify(entries []ledger.Entry) {
	changes := map[change]bool{}
	for i := range entries {
		// Many entries of a page are about the same noun; each watcher is told once.
		noun, _, _ := strings.Cut(entries[i].Kind, ".")
		changes[change{noun, entries[i].Workspace}] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = entries[len(entries)-1].Seq
	for one := range h.watchers {
		for c := range changes {
			one.addChange(c)
		}
	}
}

// every is the least time between two events on a connection, given how many are open.
func (h *hub) every() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(liveEvery, time.Duration(len(h.watchers))*livePace)
}

// join adds a watcher. It is notified of what comes after the entry that is returned. leave
// removes it.
func (h *hub) join(one *watcher) (told int64, leave func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers[one] = struct{}{}
	return h.told, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, one)
	}
}

// addChange notes a change that the page shows, and wakes its connection. The send never blocks: a
// wake that is already pending is enough.
func (o *watcher) addChange(c change) {
	// A confined operator does not even learn that something happened in another workspace.
	if !slices.Contains(o.nouns, c.noun) || o.workspace != "" && o.workspace != c.workspace {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.changed[c.noun] = true
	select {
	case o.woken <- struct{}{}:
	default:
	}
}

// drain returns the nouns that changed since it was last called.
func (o *watcher) drain() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []string
	for noun := range o.changed {
		all = append(all, noun)
	}
	clear(o.changed)
	slices.Sort(all)
	return all
}

// serveEvents streams changes to a page as server-sent events. Only nouns are sent. The page then
// asks for what it shows, with the rights that its operator has at that moment; a session that has
// ended ends the stream.
func (w *Web) serveEvents(out http.ResponseWriter, r *http.Request) {
	who, err := w.Identify(r)
	if err != nil {
		wire.Fail(out, err)
		return
	}
	one := &watcher{
		nouns: strings.Fields(r.URL.Query().Get("on")), workspace: who.Workspace, changed: map[string]bool{},
		woken: make(chan struct{}, 1),
	}
	told, leave := w.hub.join(one)
	defer leave()
	ctx, end := wire.UntilStop(r.Context())
	defer end()
	// The server's read deadline would cut the stream.
	_ = http.NewResponseController(out).SetReadDeadline(time.Time{})
	events := wire.Events(out)
	events.Retry(time.Second)
	if events.Send("", "hello", strconv.AppendInt(nil, told, 10)) != nil {
		return
	}
	for {
		select {
		case <-one.woken:
			if events.Send("", "change", []byte(strings.Join(one.drain(), " "))) != nil {
				return
			}
			// What changes during the pause is merged into the next event.
			if ledger.Pause(ctx, nil, w.hub.every()) {
				return
			}
		case <-time.After(wire.StreamBeat):
			if events.Beat() != nil {
				return
			}
		case <-ctx.Done():
			return
		}
		// A database that is away for a moment does not end the stream; the end of the session does.
		if _, err := w.Identify(r.WithContext(ctx)); fault.Is(err, fault.Unauthenticated) {
			return
		}
	}
}
