package proxy

import (
	"context"
	"regexp"
	"sync"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/counter"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// called is the record of one call that was carried. It has no text of the conversation (PRX-49):
// counts, names, and the rule that allowed it.
type called struct {
	At        int64  `json:"at"`   // microseconds since 1970
	Took      int64  `json:"took"` // microseconds
	Provider  string `json:"provider"`
	Call      string `json:"call"` // method and path
	Model     string `json:"model,omitzero"`
	Stream    bool   `json:"stream,omitzero"`
	Status    int    `json:"status"`
	ID        string `json:"id,omitzero"` // the provider's, of the reply
	Request   string `json:"request,omitzero"`
	Policy    int64  `json:"policy,omitzero"`
	Rule      string `json:"rule,omitzero"`
	ToolCalls int    `json:"tool_calls,omitzero"`
	// Decided says that the decision about the request is an entry of its own, by which it is counted; ToolsDecided
	// is how many of the tool calls have one. Allowed is how many decisions allowed something, and have none.
	Decided      bool `json:"decided,omitzero"`
	ToolsDecided int  `json:"tools_decided,omitzero"`
	Allowed      int  `json:"allowed,omitzero"`

	Input      int64  `json:"input_tokens,omitzero"`
	Output     int64  `json:"output_tokens,omitzero"`
	CacheRead  int64  `json:"cache_read_tokens,omitzero"`
	CacheWrite int64  `json:"cache_write_tokens,omitzero"`
	CostNano   int64  `json:"cost_nano,omitzero"`
	Priced     bool   `json:"priced,omitzero"`
	Run        string `json:"run,omitzero"`
}

// calls is the body of proxy.called: the calls of one agent for one user in one deck, within about 100 ms.
type calls struct {
	behalf.Of           // on whose behalf
	Agent     string    `json:"agent"`
	Project   string    `json:"project,omitzero"`
	Calls     []*called `json:"calls"`
}

// recordCall queues the record of a call, with the usage that its reply reported. Call it once the reply is given, so
// that the client does not wait for pricing. A reply that can be continued by its id is remembered too.
func (x *exchange) recordCall(about form.Facts) {
	n := &x.record
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
	n.Decided = false // what is sent again is another prompt
	if about.ID != "" && x.q.thread.kept && !x.q.thread.unknown {
		x.p.keepThread(x, about.ID)
	}
}

// price is what tokens cost: by the model that answered, else by the one that was asked for, else by
// the one that answered without the date in its name.
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

// maxQueued is how many records may wait to be written. While there are more, calls are refused: no
// call is carried that cannot be recorded (PRX-47).
const maxQueued = 10_000

// flushEvery is the least time between two writes, so that many calls share one (PRX-46). A commit,
// with everything that follows the ledger, costs more than carrying a call.
const flushEvery = 100 * time.Millisecond

// recorder writes records to the ledger after calls were answered, many in one entry. Its queue is in
// memory: a process that is killed loses up to flushEvery of records, never a decision. One
// goroutine (run) writes; any may add.
type recorder struct {
	p    *Proxy
	kick chan struct{} // has one element while there is something to write

	mu     sync.Mutex
	by     map[group]*calls
	events []ledger.Event // other entries, in order
	queued int            // records in by and events
	failed error          // why the last failed write failed
}

// group is what the records of one entry have in common.
type group struct {
	workspace, actor, agent, project string
	of                               behalf.Of
}

func newRecorder(p *Proxy) *recorder {
	return &recorder{p: p, kick: make(chan struct{}, 1), by: map[group]*calls{}}
}

// checkRoom refuses a call while too many records wait to be written.
func (r *recorder) checkRoom() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.queued < maxQueued {
		return nil
	}
	return fault.Wrap(r.failed, fault.Overloaded,
		"Too many calls wait to be written down. Try again in a moment.").With(wire.RetryAfter, 2)
}

// add queues the record of one call.
func (r *recorder) add(x *exchange, one *called) {
	g := group{x.who.Workspace, x.who.Actor(), x.who.ID, x.project, x.of}
	r.mu.Lock()
	if r.by[g] == nil {
		r.by[g] = &calls{Of: g.of, Agent: g.agent, Project: g.project}
	}
	r.by[g].Calls = append(r.by[g].Calls, one)
	r.queued++
	r.mu.Unlock()
	r.wake()
}

// append queues another entry that nobody waits for, such as a decision of a rule in shadow mode.
func (r *recorder) append(e ledger.Event) {
	r.mu.Lock()
	r.events = append(r.events, e)
	r.queued++
	r.mu.Unlock()
	r.wake()
}

// wake lets run write soon. It does not block.
func (r *recorder) wake() {
	select {
	case r.kick <- struct{}{}:
	default:
	}
}

// run writes what is queued until ctx ends, and then what is left. A failed write is tried again after a second.
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

// flushRest writes what is left when ctx has ended, and logs what is lost if that fails.
func (r *recorder) flushRest(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if !r.flush(ctx) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.p.core.Log.Error("call records lost: write failed", "calls", r.queued, "error", r.failed.Error())
	}
}

// flush writes what is queued in one transaction, and reports whether it could. If not, all of it is
// queued again, before what was added meanwhile.
func (r *recorder) flush(ctx context.Context) bool {
	r.mu.Lock()
	events := r.events
	for g, c := range r.by {
		body, err := ledger.Encode(c)
		if err != nil { // impossible: every text in it went through clean
			r.p.core.Log.Error("cannot encode call records; dropped", "error", err.Error())
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
		r.p.core.Log.Error("cannot write call records; kept for the next try", "calls", n, "error", err.Error())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events, r.queued, r.failed = append(events, r.events...), r.queued+n, err
	return false
}

// appendNow writes one entry and waits until it is on disk.
func (p *Proxy) appendNow(ctx context.Context, e ledger.Event) error {
	return p.core.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(e)
		return nil
	})
}

// readCalls are the calls in a proxy.called entry, none if its body was erased.
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

// Readers let the rulebook count prompts, tool calls, tokens and cost of calls that passed. Decisions to
// gate or block are entries of their own, which it reads by itself.
func Readers() map[string]rulebook.Reader {
	return map[string]rulebook.Reader{kindCalled: func(e *ledger.Entry) (rulebook.Reading, error) {
		c, err := readCalls(e)
		if err != nil {
			return rulebook.Reading{}, err
		}
		var prompts, tools, allowed, tokens, cost float64
		for _, one := range c.Calls {
			if one.Rule != "" && !one.Decided {
				prompts++
			}
			tools += float64(one.ToolCalls - one.ToolsDecided)
			allowed += float64(one.Allowed)
			tokens += float64(one.Input + one.Output + one.CacheRead + one.CacheWrite)
			cost += float64(one.CostNano) / 1e9
		}
		of := rulebook.Belongs{Agent: c.Agent, User: c.User, Tier: policy.API, Handoff: c.Handoff}
		return rulebook.Reading{Facts: []rulebook.Fact{
			{Belongs: of, What: "prompts", N: prompts},
			{Belongs: of, What: "tool_calls", N: tools},
			{Belongs: of, What: "allowed", N: allowed},
			{Belongs: of, What: "tokens", N: tokens},
			{Belongs: of, What: "cost", N: cost},
		}}, nil
	}}
}

// Counters count calls, tokens and cost by model and by the rule that let the call pass. A call whose model has no
// price counts as one of unknown cost.
func Counters() map[string]counter.Reader {
	return map[string]counter.Reader{kindCalled: func(e *ledger.Entry) ([]counter.Count, error) {
		c, err := readCalls(e)
		if err != nil {
			return nil, err
		}
		all := counter.PerModel{Project: c.Project, Agent: c.Agent, Protocol: Name}
		for _, one := range c.Calls {
			n := counter.Counts{
				Calls: 1, InputTokens: one.Input + one.CacheRead + one.CacheWrite, OutputTokens: one.Output,
				CacheRead: one.CacheRead, CacheWrite: one.CacheWrite, CostNano: one.CostNano,
			}
			if !one.Priced && one.Input+one.Output > 0 {
				n.CostUnknown = 1
			}
			all.Of(one.Model, one.Rule).Add(&n)
		}
		return all.Counts(), nil
	}}
}
