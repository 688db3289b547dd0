package proxy

import (
	"context"
	"regexp"
	"sync"
	"time"

	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// called is one call that was carried, without what was said in it.
type called struct {
	At         int64  `json:"at"` // microseconds
	Took       int64  `json:"took"`
	Provider   string `json:"provider"`
	Call       string `json:"call"` // method and path
	Model      string `json:"model,omitzero"`
	Stream     bool   `json:"stream,omitzero"`
	Status     int    `json:"status"`
	ID         string `json:"id,omitzero"` // the provider's, of the reply
	Request    string `json:"request,omitzero"`
	Policy     int64  `json:"policy,omitzero"`
	Rule       string `json:"rule,omitzero"`
	ToolCalls  int    `json:"tool_calls,omitzero"`
	Input      int64  `json:"input_tokens,omitzero"`
	Output     int64  `json:"output_tokens,omitzero"`
	CacheRead  int64  `json:"cache_read_tokens,omitzero"`
	CacheWrite int64  `json:"cache_write_tokens,omitzero"`
	CostNano   int64  `json:"cost_nano,omitzero"`
	Priced     bool   `json:"priced,omitzero"`
	Run        string `json:"run,omitzero"`
}

// calls is the body of proxy.called: what one agent did in one deck within some
// milliseconds.
type calls struct {
	Agent   string    `json:"agent"`
	Project string    `json:"project,omitzero"`
	Calls   []*called `json:"calls"`
}

// recordCall queues a call to be written down, with the usage that the reply reported.
func (x *exchange) recordCall(about form.Facts) {
	n := &x.note
	n.At, n.Took = x.began.UnixMicro(), time.Since(x.began).Microseconds()
	n.Provider, n.Call, n.Stream, n.Request, n.Run = x.provider, x.r.Method+" "+x.path, x.q.stream, x.fp, clean(x.run)
	if n.Model = clean(x.q.model); about.Model != "" {
		n.Model = clean(about.Model)
	}
	n.ID = clean(about.ID)
	u := about.Usage
	n.Input, n.Output, n.CacheRead, n.CacheWrite = u.Input, u.Output, u.CacheRead, u.CacheWrite
	if u != (form.Usage{}) && x.kind != "" { // a stored reply was counted when it was made
		n.CostNano, n.Priced = x.p.price(n.Model, x.q.model, u)
	}
	one := *n
	x.p.recorder.add(x, &one)
	if about.ID != "" && x.q.thread.kept && !x.q.thread.unknown {
		x.p.keepThread(x, about.ID)
	}
}

// price is what tokens cost, by the model that answered, or the one that was asked for.
func (p *Proxy) price(answered, asked string, u form.Usage) (int64, bool) {
	for _, name := range []func() string{
		func() string { return answered },
		func() string { return asked },
		func() string { return dated.ReplaceAllString(answered, "") },
	} {
		if nano, known := p.Price(name(), u.Input, u.Output, u.CacheRead, u.CacheWrite); known {
			return nano, true
		}
	}
	return 0, false
}

// dated is the day at the end of a model's full name, which price lists leave out.
var dated = regexp.MustCompile(`-\d{4}-?\d{2}-?\d{2}$`)

// maxQueued is how many calls wait to be written. When there are more, calls are refused: no call
// is carried that cannot be recorded.
const maxQueued = 10_000

// flushEvery is the least time between two writes, so that many calls share one: a commit, with
// all that follows the ledger, costs more than a call.
const flushEvery = 100 * time.Millisecond

// recorder writes calls to the ledger after they were answered, many in one entry.
type recorder struct {
	p    *Proxy
	kick chan struct{}

	mu     sync.Mutex
	by     map[group]*calls
	events []ledger.Event // others, in order
	queued int
	failed error // why the last write failed
}

type group struct{ workspace, actor, agent, project string }

func newRecorder(p *Proxy) *recorder {
	return &recorder{p: p, kick: make(chan struct{}, 1), by: map[group]*calls{}}
}

// checkRoom refuses calls while too many wait to be written.
func (r *recorder) checkRoom() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queued < maxQueued {
		return nil
	}
	return fault.Wrap(r.failed, fault.Overloaded,
		"Too many calls wait to be written down. Try again in a moment.").With(wire.RetryAfter, 2)
}

func (r *recorder) add(x *exchange, one *called) {
	g := group{x.who.Workspace, x.who.Actor(), x.who.ID, x.project}
	r.mu.Lock()
	if r.by[g] == nil {
		r.by[g] = &calls{Agent: g.agent, Project: g.project}
	}
	r.by[g].Calls = append(r.by[g].Calls, one)
	r.queued++
	r.mu.Unlock()
	r.wake()
}

// append queues another entry.
func (r *recorder) append(e ledger.Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	r.queued++
	r.mu.Unlock()
	r.wake()
}

func (r *recorder) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run writes until ctx ends, and then what is left.
func (r *recorder) run(ctx context.Context) {
	for {
		select {
		case <-r.kick:
		case <-ctx.Done():
			r.flushRest(ctx)
			return
		}
		pause := flushEvery
		if !r.flush(ctx) {
			pause = time.Second
			r.wake()
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// flushRest writes what is left when ctx has ended.
func (r *recorder) flushRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if !r.flush(ctx) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.p.core.Log.Error("calls lost: write failed", "calls", r.queued, "error", r.failed.Error())
	}
}

// flush writes what is queued, and reports whether it could. What could not be written stays.
func (r *recorder) flush(ctx context.Context) bool {
	r.mu.Lock()
	events := r.events
	for g, c := range r.by {
		body, err := ledger.Encode(c)
		if err != nil { // cannot be: texts were cleaned
			r.p.core.Log.Error("calls cannot be encoded", "error", err.Error())
			continue
		}
		events = append(events, ledger.Event{
			Workspace: g.workspace, Kind: kindCalled, Actor: g.actor, Subject: g.agent, Body: body,
		})
	}
	n := r.queued
	r.events, r.by, r.queued = nil, map[group]*calls{}, 0
	r.mu.Unlock()
	if len(events) == 0 {
		return true
	}
	err := r.p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		for _, e := range events {
			tx.Append(e)
		}
		return nil
	})
	if err == nil {
		return true
	}
	if ctx.Err() == nil { // else flushRest tries once more
		r.p.core.Log.Error("calls cannot be written yet; they are kept", "calls", n, "error", err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.queued, r.failed = append(events, r.events...), r.queued+n, err
	return false
}

// appendNow writes one entry, and waits for it.
func (p *Proxy) appendNow(ctx context.Context, e ledger.Event) error {
	return p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(e)
		return nil
	})
}

// readCalls are the calls in an entry.
func readCalls(e *ledger.Entry) (calls, error) {
	var c calls
	if v, ok := e.Value().(*calls); ok {
		return *v, nil
	}
	if e.Body == nil {
		return c, nil
	}
	return c, wire.UnmarshalPart(e.Body, &c)
}

// Readers find what rules count: prompts, tool calls, tokens and cost of what was passed.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kindCalled: func(e *ledger.Entry) (rulebook.Reading, error) {
		c, err := readCalls(e)
		if err != nil {
			return rulebook.Reading{}, err
		}
		var prompts, tools, tokens, cost float64
		for _, one := range c.Calls {
			if one.Rule != "" {
				prompts++
			}
			tools += float64(one.ToolCalls)
			tokens += float64(one.Input + one.Output + one.CacheRead + one.CacheWrite)
			cost += float64(one.CostNano) / 1e9
		}
		return rulebook.Reading{Facts: []rulebook.Fact{
			{Agent: c.Agent, What: "prompts", N: prompts},
			{Agent: c.Agent, What: "tool_calls", N: tools},
			{Agent: c.Agent, What: "tokens", N: tokens},
			{Agent: c.Agent, What: "cost", N: cost},
		}}, nil
	}}
}

// Counters count tokens and cost, per agent, deck and day.
func Counters() map[string]counter.Reader {
	return map[string]counter.Reader{kindCalled: func(e *ledger.Entry) (*counter.Count, error) {
		c, err := readCalls(e)
		if err != nil || len(c.Calls) == 0 {
			return nil, err
		}
		out := &counter.Count{Project: c.Project, Agent: c.Agent}
		for _, one := range c.Calls {
			out.InputTokens += one.Input + one.CacheRead + one.CacheWrite
			out.OutputTokens += one.Output
			out.CostNano += one.CostNano
			if !one.Priced && one.Input+one.Output > 0 {
				out.CostUnknown++
			}
		}
		return out, nil
	}}
}
