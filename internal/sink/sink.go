package sink

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/secret"
	"signalbox/internal/show"
	"signalbox/internal/wire"
)

const (
	// maxBatch is when a batch takes no further entry, in bytes. One entry may be larger.
	maxBatch = 2 << 20
	// pace is the least time between two batches that were not full, so that entries that come one by one
	// do not each have a connection.
	pace = 250 * time.Millisecond
	// firstPause and maxPause are between two tries of a sink that fails.
	firstPause = time.Second
	maxPause   = 5 * time.Minute
	// patience is how long a function of the ledger may wait before it has to return.
	patience = 5 * time.Second
	// maxProblem is how much of a problem is kept, in bytes.
	maxProblem = 500
)

// Options say where entries go. A field that is empty is a sink that does not exist.
type Options struct {
	Ledger *ledger.Ledger
	Now    func() time.Time
	Log    *slog.Logger

	File      string
	FileBytes int64 // when a file is full, and another one begins
	Syslog    *url.URL
	HTTP      wire.Secret // an address may hold a key
	Token     wire.Secret // for HTTP, as a bearer token
	Roots     string      // a file of certificates that TLS believes, instead of those of the system
	Bodies    bool        // entries leave with their bodies
	// Followers take entries in a form of their own, by the name of their sink. They begin with the first entry that is
	// written after they were first there.
	Followers map[string]Follower
}

// Follower is the other side of a sink that has a form of its own. Take returns nil when the other side has the
// entries; else it is called with them again.
type Follower interface {
	Take(ctx context.Context, entries []ledger.Entry) error
}

// following is a follower as a target.
type following struct{ Follower }

func (f following) send(ctx context.Context, b batch) error { return f.Take(ctx, b.entries) }

// State is how far a sink has come.
type State struct {
	Name string `json:"name"` // file, syslog or http
	// Seq is the last entry that the other side has, and Lag how many it has not.
	Seq int64 `json:"seq"`
	Lag int64 `json:"lag"`
	// Since is when the oldest entry was made that the other side has not.
	Since *time.Time `json:"since"`
	// Problem is why the last try of this node failed, "" if it did not, or another node sends.
	Problem string `json:"problem,omitempty"`
	// Lossy says that nobody hears of what is lost on the way.
	Lossy bool `json:"lossy,omitempty"`
}

// Text is the state in a sentence, and good is whether nobody has to look at it.
func (s State) Text(now time.Time) (text string, good bool) {
	if s.Lag == 0 {
		return fmt.Sprintf("has all entries up to %d", s.Seq), true
	}
	late := now.Sub(*s.Since).Round(time.Second)
	text = fmt.Sprintf("has entries up to %d; %d are left, the oldest of them %s old", s.Seq, s.Lag, late)
	if s.Problem != "" {
		return text + ": " + s.Problem, false
	}
	return text, late < lateAfter
}

// lateAfter is how old an entry may be that was not sent, before somebody should look.
const lateAfter = time.Minute

// Sinks are the sinks of a server. New makes them, Run sends.
type Sinks struct {
	ledger *ledger.Ledger
	now    func() time.Time
	log    *slog.Logger
	all    []*sink
}

// target is the other side of a sink. send returns nil when the other side has the batch. It belongs to one goroutine.
type target interface {
	send(ctx context.Context, b batch) error
}

// batch are entries that follow each other, each as one line of JSON without the line break.
type batch struct {
	first, last int64
	entries     []ledger.Entry
	lines       [][]byte
}

// sink is one sink: how far it has come in this process, and when it tries again.
type sink struct {
	name   string
	target target
	bodies bool
	lossy  bool
	done   int64 // the last entry that the other side has, as far as this process knows
	pause  time.Duration
	next   time.Time

	mu      sync.Mutex
	problem string
}

// New makes the sinks that the options name.
func New(o Options) (*Sinks, error) {
	s := &Sinks{ledger: o.Ledger, now: o.Now, log: o.Log}
	var roots *x509.CertPool
	if o.Roots != "" {
		text, err := os.ReadFile(o.Roots)
		if roots = x509.NewCertPool(); err == nil && !roots.AppendCertsFromPEM(text) {
			err = errors.New("it holds no certificate in PEM form")
		}
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidConfig,
				"Cannot read the certificates in %s. Give a file in PEM form that this user may read.", o.Roots).
				About("export.roots")
		}
	}
	add := func(name string, t target, lossy bool) {
		s.all = append(s.all, &sink{name: name, target: t, bodies: o.Bodies, lossy: lossy})
	}
	if o.File != "" {
		add("file", &file{path: o.File, full: o.FileBytes}, false)
	}
	if o.Syslog != nil {
		add("syslog", newSyslog(o.Syslog, roots), o.Syslog.Scheme == "udp")
	}
	if o.HTTP.Reveal() != "" {
		add("http", newCollector(o.HTTP, o.Token, roots), false)
	}
	for _, name := range slices.Sorted(maps.Keys(o.Followers)) {
		add(name, following{o.Followers[name]}, false)
	}
	return s, nil
}

// cursorOf names the cursor of a sink.
func cursorOf(name string) string { return "export." + name }

// Run sends until ctx ends.
func (s *Sinks) Run(ctx context.Context) error {
	var g errgroup.Group
	for _, one := range s.all {
		g.Go(func() error {
			if _, follows := one.target.(following); follows {
				s.beginNow(ctx, one.name)
			}
			return s.ledger.Consume(ctx, cursorOf(one.name), func(string) bool { return true },
				func(ctx context.Context, entries []ledger.Entry) error { return s.pass(ctx, one, entries) })
		})
	}
	return g.Wait()
}

// beginNow lets a sink that was never there begin with the entries that follow.
func (s *Sinks) beginNow(ctx context.Context, name string) {
	for ctx.Err() == nil {
		head, err := s.ledger.Head(ctx)
		if err == nil {
			err = s.ledger.BeginAt(ctx, cursorOf(name), head)
		}
		if err == nil {
			return
		}
		s.log.Warn("cannot begin to send entries; retrying", "sink", name, "error", err.Error())
		ledger.Pause(ctx, nil, firstPause)
	}
}

// States say how far each sink has come, whichever node sends.
func (s *Sinks) States(ctx context.Context) (all []State, err error) {
	if s == nil || len(s.all) == 0 {
		return nil, nil
	}
	head, err := s.ledger.Head(ctx)
	if err != nil {
		return nil, err
	}
	for _, one := range s.all {
		state := State{Name: one.name, Lossy: one.lossy}
		if state.Seq, err = s.ledger.Cursor(ctx, cursorOf(one.name)); err != nil {
			return nil, err
		}
		if state.Lag = max(head-state.Seq, 0); state.Lag > 0 {
			oldest, err := s.ledger.Entry(ctx, state.Seq+1)
			if err != nil {
				return nil, err
			}
			state.Since = &oldest.At
		}
		one.mu.Lock()
		state.Problem = one.problem
		one.mu.Unlock()
		all = append(all, state)
	}
	return all, nil
}

// pass sends a page of entries in batches. It returns an error until the other side has all of them.
func (s *Sinks) pass(ctx context.Context, one *sink, entries []ledger.Entry) error {
	if wait := one.next.Sub(s.now()); wait > 0 {
		if ledger.Pause(ctx, nil, min(wait, patience)); ctx.Err() != nil || wait > patience {
			return errors.New("waiting before the next try: " + one.last())
		}
	}
	full := len(entries) == ledger.Page
	for len(entries) > 0 {
		var b batch
		var err error
		if b, entries, err = one.cut(entries); err != nil {
			return err
		}
		if len(b.lines) == 0 {
			continue
		}
		if err := one.target.send(ctx, b); err != nil {
			if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
				return err // the server stops
			}
			one.failed(err)
			one.pause = min(max(2*one.pause, firstPause), maxPause)
			one.next = s.now().Add(one.pause)
			return errors.New(one.last())
		}
		one.done, one.pause, one.next = b.last, 0, time.Time{}
		one.failed(nil)
	}
	if !full {
		ledger.Pause(ctx, nil, pace)
	}
	return nil
}

// cut takes a batch from the beginning of the entries, and leaves out what the other side has.
func (one *sink) cut(entries []ledger.Entry) (b batch, rest []ledger.Entry, err error) {
	size := 0
	for i := range entries {
		e := &entries[i]
		if e.Seq <= one.done {
			continue
		}
		line, err := lineOf(e, one.bodies)
		if err != nil {
			return b, nil, err
		}
		if size += len(line); size > maxBatch && len(b.lines) > 0 {
			return b, entries[i:], nil
		}
		b.first, b.last = cmp.Or(b.first, e.Seq), e.Seq
		b.entries, b.lines = append(b.entries, *e), append(b.lines, line)
	}
	return b, nil, nil
}

// lineOf is an entry as `ledger tail --json` prints it, in one line, in which every character can be seen.
func lineOf(e *ledger.Entry, body bool) ([]byte, error) {
	view := e.View()
	if !body {
		view.Body, view.RawBody = nil, nil
	}
	text, err := wire.Marshal(view)
	if err != nil {
		return nil, fmt.Errorf("write entry %d as JSON: %w", e.Seq, err)
	}
	return show.JSON(text), nil
}

// failed notes why a try failed, or that it did not.
func (one *sink) failed(err error) {
	one.mu.Lock()
	defer one.mu.Unlock()
	if one.problem = ""; err == nil {
		return
	}
	// The error of a call has the address, which may hold a key.
	if in := (*url.Error)(nil); errors.As(err, &in) {
		err = in.Err
	}
	one.problem = tidy(err.Error())
}

// last is why the last try failed.
func (one *sink) last() string {
	one.mu.Lock()
	defer one.mu.Unlock()
	return one.problem
}

// tidy is a text that another program has written, for people.
func tidy(text string) string { return show.Text(secret.Hide(text[:min(len(text), maxProblem)])) }
