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

// partHeader marks a call by the script for a page that is open already.
const partHeader = "X-Relay-Refresh"

const (
	// liveEvery is the least time between two events on a connection. The first change is
	// told at once; what follows on its heels is told together, and still soon enough to be
	// on screen within 150 milliseconds.
	liveEvery = 60 * time.Millisecond
	// livePace makes that longer when many watch: each event has a page made, and all of
	// them together should not take a processor. 200 who watch see a change every two
	// seconds when there is always one.
	livePace = 10 * time.Millisecond
)

// hub tells the pages that are open what has happened. The ledger is followed once,
// however many there are.
type hub struct {
	mu       sync.Mutex
	watchers map[*watcher]struct{}
	told     int64 // the last entry that watchers were told of
}

// watcher is one page that is open.
type watcher struct {
	nouns     []string
	workspace string // "" sees all

	mu      sync.Mutex
	changed map[string]bool // nouns it has not been told of
	woken   chan struct{}
}

// change is what happened: an entry about something, somewhere.
type change struct{ noun, workspace string }

func (h *hub) run(ctx context.Context, l *ledger.Ledger) error {
	for ctx.Err() == nil {
		head, err := l.Head(ctx)
		if err != nil { // the ledger says itself when it cannot be read
			ledger.Pause(ctx, nil, time.Second)
			continue
		}
		for entries := range l.FollowPages(ctx, head) {
			h.tell(entries)
		}
	}
	return nil
}

func (h *hub) tell(entries []ledger.Entry) {
	changes := map[change]bool{}
	for i := range entries {
		noun, _, _ := strings.Cut(entries[i].Kind, ".")
		changes[change{noun, entries[i].Workspace}] = true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = entries[len(entries)-1].Seq
	for one := range h.watchers {
		for c := range changes {
			one.tell(c)
		}
	}
}

// every is the least time between two events on a connection, as many as there are.
func (h *hub) every() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(liveEvery, time.Duration(len(h.watchers))*livePace)
}

// join has the watcher told of what comes after the entry that is returned.
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

func (o *watcher) tell(c change) {
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

// take is what has changed since it was last asked.
func (o *watcher) take() []string {
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

// serveEvents tells a page of what has changed, as server-sent events. Only nouns are
// sent; the page asks for what it shows, with the rights that it has then.
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
	_ = http.NewResponseController(out).SetReadDeadline(time.Time{})
	events := wire.Events(out)
	events.Retry(time.Second)
	if events.Send("", "hello", strconv.AppendInt(nil, told, 10)) != nil {
		return
	}
	for {
		select {
		case <-one.woken:
			if events.Send("", "change", []byte(strings.Join(one.take(), " "))) != nil {
				return
			}
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
		if _, err := w.Identify(r.WithContext(ctx)); fault.Is(err, fault.Unauthenticated) {
			return
		}
	}
}
