// Package record is the supervisor's side of a recorded run: it reports events to a
// server, holds the run's session there, and hears when the run has to stop.
//
// Nothing that was handed to it is lost while it lives: events wait in a bounded queue
// until the server has recorded them, however often the server goes away meanwhile.
// When the queue is full the run is held up (RUN-37). A report is sent again until it
// is answered; the numbers keep the server from recording it twice (RUN-33). An error
// that a second try cannot change ends the run: nobody may do what is not recorded.
//
// It knows the server by HTTP only.
package record

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/wire"
)

// Server is where runs are recorded. Each run has its own value, with its own
// connections.
type Server struct {
	URL   func() (string, error) // it may move when it starts again
	Token string                 // an operator's
	HTTP  *http.Client
}

const (
	// What waits for the server at most, and what goes into one report.
	maxQueue       = 1000
	maxQueueBytes  = 16 << 20
	maxReport      = 100
	maxReportBytes = 8 << 20

	// Pauses between tries while the server is away; each is twice the one before.
	firstPause = 50 * time.Millisecond
	maxPause   = 2 * time.Second
	// troubleTime is longer than a server takes to start again as a rule.
	troubleTime = 2 * time.Second
	// pulseWait is how long the server is asked to hold a call for orders. It is shorter
	// than the lease (RUN-35).
	pulseWait = 20 // seconds
	// lockPoll is how often a session that another run holds is asked for.
	lockPoll = 200 * time.Millisecond
)

// NewHTTP makes the client of one run, with connections of its own. The runs of a
// process would otherwise share the two idle connections that a transport keeps, and
// open a new one for most calls.
func NewHTTP() *http.Client {
	return &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: time.Minute},
		Timeout:   90 * time.Second,
	}
}

// Open opens a run that the caller reports.
func (s Server) Open(ctx context.Context, r run.Request) (opened run.Run, err error) {
	return opened, s.call(ctx, "/runs", r, &opened)
}

// call makes one call. A *fault.Error is the server's refusal, which a second try would
// meet again. Every other error may go away: no connection, a server error, too many
// calls.
func (s Server) call(ctx context.Context, path string, body, answer any) error {
	data, err := wire.Marshal(body)
	if err != nil {
		return fault.Wrap(err, fault.InvalidPayload, "An event cannot be written as JSON.")
	}
	base, err := s.URL()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+path, bytes.NewReader(data))
	if err != nil {
		return fault.Wrap(err, fault.InvalidRequest, "%q is not an address of a server.", base)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+s.Token)
	res, err := s.HTTP.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 4<<20))
	if err != nil {
		return err
	}
	if res.StatusCode < 300 {
		return wire.UnmarshalPart(text, answer)
	}
	var e wire.ErrorBody
	if err := wire.UnmarshalPart(text, &e); err != nil || e.Message == "" || res.StatusCode >= 500 ||
		res.StatusCode == http.StatusTooManyRequests {
		return UnableError{res.Status, e.Message}
	}
	return &fault.Error{Code: e.Error, Message: e.Message, Field: e.Field, Details: e.Details}
}

// UnableError says that the server is there and cannot do what it was asked for now, such as while its disk is full.
type UnableError struct{ Status, Message string }

// Error is what the server says, or its status if it says nothing.
func (e UnableError) Error() string {
	if e.Message == "" {
		return "The server answered " + e.Status + "."
	}
	return e.Message
}

// Recorder reports one run. Event takes events, Run sends them, Close says that there
// are no more. mu guards what is below it, and change is signalled whenever any of it
// changes. Only Run removes from the queue.
type Recorder struct {
	server Server
	id     string
	stop   context.CancelCauseFunc // ends the run

	mu     sync.Mutex
	change *sync.Cond
	queue  []run.Entry
	bytes  int
	sent   int64 // how many are recorded
	closed bool
	ended  bool // completed was handed over
	thread string
	held   bool  // the session is ours
	broken error // why nothing more can be recorded
	// trouble is why nothing can be recorded for now, "" if it can be; engine and usage are those of the last event.
	trouble string
	engine  string
	usage   engine.Usage

	// Awaited is called with the decisions that the run waits for, whenever they are others. Set it before Run; it may be
	// nil. known are the ids of their gates, which only the goroutine of the pulses uses.
	Awaited func([]run.Awaited)
	known   []string
	asking  atomic.Bool // one of them holds up the run
	// Trouble is called when nothing could be recorded for troubleTime, with the reason, and with "" when it can be
	// again. Set it before Run; it may be nil.
	Trouble func(why string)
	failing time.Time // since when, and whether it was said; only Run uses them
	said    bool
}

// Begin makes the recorder of a run, of which so many events are recorded already. stop
// is called with a process.StoppedError when the run has to end.
func (s Server) Begin(id string, recorded int64, stop context.CancelCauseFunc) *Recorder {
	r := &Recorder{server: s, id: id, stop: stop, sent: recorded}
	r.change = sync.NewCond(&r.mu)
	return r
}

// Event takes an event. It waits while too much is waiting for the server, which holds
// the CLI up (RUN-37). Once nothing can be recorded any more, it returns at once.
func (r *Recorder) Event(e engine.Event, u engine.Usage) {
	text := encode(e)
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.broken == nil && (len(r.queue) >= maxQueue || r.bytes > maxQueueBytes) {
		r.change.Wait()
	}
	if r.broken != nil {
		return
	}
	r.ended, r.engine = r.ended || e.Type == engine.Completed, e.Engine
	r.add(run.Entry{Event: text, Usage: u})
}

// add puts an event into the queue. The caller holds mu.
func (r *Recorder) add(e run.Entry) {
	r.queue, r.usage = append(r.queue, e), e.Usage
	r.bytes += len(e.Event)
	r.change.Broadcast()
}

// encode is an event as JSON.
func encode(e engine.Event) wire.Raw {
	text, err := wire.EncodeData(e)
	if err != nil {
		text = fmt.Appendf(
			nil, `{"type":"action","engine":%q,"action":{"id":"unreadable","kind":"warning",`+
				`"title":"an event that cannot be written as JSON","detail":{}},"phase":"completed",`+
				`"ok":false}`, e.Engine,
		)
	}
	return strictJSON(text)
}

// strictJSON is JSON that the server parses strictly. What an agent gave a tool may name a
// member twice; then the last one counts, as for the tool.
func strictJSON(text []byte) wire.Raw {
	if _, err := wire.Marshal(wire.Raw(text)); err == nil {
		return text
	}
	v, err := wire.ForeignData(text)
	if err != nil {
		return wire.Raw("null")
	}
	mended, _ := wire.EncodeData(v) // it was JSON before
	return mended
}

// Close says that no more events come. Run returns when everything is recorded.
func (r *Recorder) Close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.change.Broadcast()
}

// Run reports until everything is recorded after Close, or ctx ends. The error says why
// not everything is. It also sends the signs of life, which end with it.
func (r *Recorder) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	wake := context.AfterFunc(ctx, func() { r.mu.Lock(); defer r.mu.Unlock(); r.change.Broadcast() })
	defer wake()
	var pulse sync.WaitGroup
	pulse.Go(func() { r.sendPulses(ctx) })
	defer pulse.Wait()
	defer cancel()
	for pause := firstPause; ; {
		report, more := r.nextReport(ctx)
		if !more {
			return r.outcome(ctx)
		}
		var o run.Orders
		err := r.server.call(ctx, "/runs/"+r.id+"/events", report, &o)
		r.noteTrouble(ctx, err)
		if done := r.takeAnswer(report, o, err); done {
			pause = firstPause
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, maxPause)
		case <-ctx.Done():
		}
	}
}

// noteTrouble says that nothing can be recorded: the run would be held up in silence (RUN-37). What the server itself
// says, as of a full disk, is said at once.
func (r *Recorder) noteTrouble(ctx context.Context, err error) {
	var refused *fault.Error
	switch unable := (UnableError{}); {
	case ctx.Err() != nil || errors.As(err, &refused):
	case err == nil:
		if r.said {
			r.tell(ctx, "")
		}
		r.failing, r.said = time.Time{}, false
	case r.said:
	case errors.As(err, &unable) && unable.Message != "":
		r.said = true
		r.tell(ctx, unable.Message)
	case r.failing.IsZero():
		r.failing = time.Now()
	case time.Since(r.failing) > troubleTime:
		r.said = true
		r.tell(ctx, "The server cannot be reached.")
	}
}

// tell says that nothing can be recorded, or with "" that it can be again: to who watches here, to the server, which
// shows it to others, and in the record as soon as that is possible.
func (r *Recorder) tell(ctx context.Context, why string) {
	if r.Trouble != nil {
		r.Trouble(why)
	}
	r.mu.Lock()
	was := r.trouble
	r.trouble = why
	if why == "" && !r.ended { // the queue may be full, and this goroutine empties it
		fine := true
		r.add(run.Entry{Usage: r.usage, Event: encode(engine.Event{
			Type: engine.Acted, Engine: r.engine, Phase: engine.Done, OK: &fine, Level: "warning", Action: &engine.Action{
				ID: fmt.Sprintf("signalbox.held.%d", r.sent), Kind: engine.Warning, Detail: map[string]any{},
				Title: "the run was held up, since nothing could be recorded: " + was,
			},
		})})
	}
	p := run.Pulse{Thread: r.thread, Trouble: &why}
	r.mu.Unlock()
	var o run.Orders
	_ = r.server.call(ctx, fmt.Sprintf("/runs/%s/pulse?wait=0", r.id), p, &o) // the next one says it again
}

// nextReport waits for events to report; more is false if there will be none. They stay in
// the queue until settle.
func (r *Recorder) nextReport(ctx context.Context) (report run.Report, more bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 && !r.closed && r.broken == nil && ctx.Err() == nil {
		r.change.Wait()
	}
	if len(r.queue) == 0 || r.broken != nil || ctx.Err() != nil {
		return report, false
	}
	report.From = r.sent + 1
	for size, i := 0, 0; i < len(r.queue) && i < maxReport &&
		(i == 0 || size+len(r.queue[i].Event) < maxReportBytes); i++ {
		size += len(r.queue[i].Event)
		report.Events = append(report.Events, r.queue[i])
	}
	return report, true
}

// takeAnswer takes the answer to a report; false if the same report has to be sent again.
func (r *Recorder) takeAnswer(report run.Report, o run.Orders, err error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var refused *fault.Error
	switch {
	case err == nil:
		for _, e := range report.Events {
			r.bytes -= len(e.Event)
		}
		r.sent += int64(len(report.Events))
		r.queue = r.queue[len(report.Events):]
		if o.Stop != "" {
			r.stop(process.StoppedError{Reason: o.Stop, Cause: o.Cause})
		}
	case errors.As(err, &refused):
		// RUN-37: nobody may do what is not recorded.
		r.broken = refused
		r.stop(process.StoppedError{
			Reason: "the run can no longer be recorded: " + refused.Message, Cause: engine.ByPolicy,
		})
	default:
		return false
	}
	r.change.Broadcast()
	return true
}

// outcome is why not everything was recorded, nil if it was.
func (r *Recorder) outcome(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.broken != nil:
		return r.broken
	case len(r.queue) > 0:
		return fmt.Errorf("%d events could not be recorded: %w", len(r.queue), ctx.Err())
	}
	return nil
}

// sendPulses sends signs of life and obeys orders until ctx ends or the run has ended on the
// server.
func (r *Recorder) sendPulses(ctx context.Context) {
	for ctx.Err() == nil {
		o, err := r.pulse(ctx, pulseWait)
		if err == nil && !o.Ended && o.Stop == "" { // gates that end with the run are not decided
			r.noteAwaited(o.Awaited)
		}
		var refused *fault.Error
		switch {
		case errors.As(err, &refused):
			r.stop(process.StoppedError{
				Reason: "the server no longer knows the run: " + refused.Message, Cause: engine.ByPolicy,
			})
			return
		// The server completed the run because we went silent, unless the end is our own
		// report's.
		case err == nil && o.Ended:
			if !r.isEnded() {
				r.stop(process.StoppedError{Reason: "the server has completed the run"})
			}
			return
		case err == nil && o.Stop != "":
			r.stop(process.StoppedError{Reason: o.Stop, Cause: o.Cause})
			fallthrough
		case err != nil || !o.Held:
			r.checkHold(o, err)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
			}
		}
	}
}

// noteAwaited takes the decisions that the run waits for now.
func (r *Recorder) noteAwaited(all []run.Awaited) {
	if slices.EqualFunc(all, r.known, func(a run.Awaited, gate string) bool { return a.Gate == gate }) {
		return
	}
	r.known = nil
	waits := false
	for _, a := range all {
		r.known = append(r.known, a.Gate)
		waits = waits || !a.Outlasts
	}
	r.asking.Store(waits)
	if r.Awaited != nil {
		r.Awaited(all)
	}
}

// Asking reports whether the run waits for a person, as far as the server knows: at a gate of the model proxy, of hooks
// or of another protocol that holds up what is asked about.
func (r *Recorder) Asking() bool { return r.asking.Load() }

// isEnded reports whether the completed event was handed over.
func (r *Recorder) isEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ended
}

// checkHold ends a run whose session another run has taken (RUN-36): the server was
// away for so long that we counted as dead. An error says nothing about the hold.
func (r *Recorder) checkHold(o run.Orders, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && !o.Held && r.held {
		r.stop(process.StoppedError{Reason: "another run has taken over the session"})
	}
}

// pulse sends one sign of life and waits for orders, at most so many seconds.
func (r *Recorder) pulse(ctx context.Context, wait int) (o run.Orders, err error) {
	r.mu.Lock()
	p := run.Pulse{Thread: r.thread}
	if why := r.trouble; why != "" {
		p.Trouble = &why
	}
	r.mu.Unlock()
	if wait > 0 {
		p.Awaited, p.Known = true, r.known
	}
	return o, r.server.call(ctx, fmt.Sprintf("/runs/%s/pulse?wait=%d", r.id, wait), p, &o)
}

// Lock holds a session for the run, on all machines, and waits until it is free
// (RUN-27). It is freed when the run is completed, or a lease after we die; so there is
// nothing to release here.
func (r *Recorder) Lock(ctx context.Context, thread string) (release func(), err error) {
	r.mu.Lock()
	r.thread = thread
	r.mu.Unlock()
	for {
		o, err := r.pulse(ctx, 0)
		if err == nil && o.Held {
			r.mu.Lock()
			r.held = true
			r.mu.Unlock()
			return func() {}, nil
		}
		var refused *fault.Error
		if errors.As(err, &refused) {
			return nil, refused
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
