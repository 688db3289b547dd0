package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/gate"
	"signalbox/internal/handoff"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/protocol"
	"signalbox/internal/proxy/meter"
	"signalbox/internal/proxy/vault"
	"signalbox/internal/roster"
	"signalbox/internal/rulebook"
)

// Name is the protocol's name in rules (event.protocol) and the value of gate.Origin.Protocol.
const Name = "proxy"

// Protocol describes the model proxy of AMP v1.0 to the server: tables, projections, counters. It
// makes no service; New does.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Model proxy",
		Migrations: Migrations, Projection: Projection(), Readers: readers(), Counters: meter.Counters(Name),
	}
}

// readers let the rulebook count what is carried.
func readers() map[string]rulebook.Reader {
	all := meter.Readers()
	all[kindReleased] = readReleased
	return all
}

// Options are the settings of the proxy, and what it needs of other protocols. Durations that are
// zero take the default that stands beside them; tests make them short.
type Options struct {
	VaultFile string            // where that is
	VaultKey  []byte            // encrypts the vault; at least 32 random bytes
	Upstreams map[string]string // the address of each provider, without /v1
	// Webhook is the address that an agent's decisions are sent to, "" for none, and the
	// generation of the secret that signs them.
	Webhook func(agentID string) (target string, generation int)

	Beat    time.Duration // between signs of life on a stream that is held (PRX-29); 12 s
	Attempt time.Duration // how long a call gets no status, at most (PRX-30); 4 min, since Node waits for 5
	Hold    time.Duration // how long a call is held, unless the agent's settings say (PRX-31); 9 min
	Idle    time.Duration // how long a provider may be silent (PRX-14); 10 min
}

// Proxy carries calls to providers. The server makes one per process with New, and calls Run,
// which has to be running while calls are carried: it keeps the maps below up to date, on this
// node and for changes of others, and writes down what was carried.
type Proxy struct {
	Options
	core      protocol.Core
	upstreams map[string]*url.URL
	transport *http.Transport
	vault     *vault.Vault
	meter     *meter.Meter
	looked    atomic.Pointer[[]*rules] // see look
	loaded    chan struct{}            // closed when keys and approvals are in memory; calls wait for it
	once      sync.Once                // closes it

	// mu guards everything below. Each map follows the ledger and can be read again from it
	// (load), except announced and given, which are about calls of this process.
	mu        sync.RWMutex
	settings  map[string]Settings      // by the agent's id
	owners    map[string]binding       // by the fingerprint of a provider's key
	awaited   map[string]awaited       // gates whose receipts are awaited, by agent and call
	forgets   time.Time                // when forget is due
	threads   map[string]knownThread   // what conversations that providers keep may use
	announced map[string]chan struct{} // calls whose gate is about to be opened

	approvals map[string]*gate.Approval // by the fingerprint of a call
	given     map[string]given          // replies of this node that were given as a whole, by fingerprint
	silent    map[string]time.Time      // providers that do not take the question for usage, and until when
}

// New makes the proxy over a core whose ledger has Projection. It makes no call and reads nothing
// yet; Run does.
func New(core protocol.Core, o Options) (*Proxy, error) {
	for _, d := range []struct {
		of     *time.Duration
		absent time.Duration
	}{
		{&o.Beat, 12 * time.Second},
		{&o.Attempt, 4 * time.Minute},
		{&o.Hold, 9 * time.Minute},
		{&o.Idle, 10 * time.Minute},
	} {
		if *d.of == 0 {
			*d.of = d.absent
		}
	}
	p := &Proxy{
		Options: o, loaded: make(chan struct{}), core: core, upstreams: map[string]*url.URL{},
		settings: map[string]Settings{}, owners: map[string]binding{}, approvals: map[string]*gate.Approval{},
		awaited: map[string]awaited{}, given: map[string]given{}, silent: map[string]time.Time{},
		threads: map[string]knownThread{}, announced: map[string]chan struct{}{},
		// The transport does not decompress, since bytes are passed on as they arrive, and it never
		// follows redirects. Idle connections are kept for the many short calls of agents.
		transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1024, MaxIdleConnsPerHost: 512, IdleConnTimeout: 90 * time.Second,
			TLSHandshakeTimeout: 10 * time.Second, ResponseHeaderTimeout: o.Idle, DisableCompression: true,
			ForceAttemptHTTP2: true,
		},
	}
	for name, address := range o.Upstreams {
		u, err := url.Parse(strings.TrimSuffix(address, "/"))
		if err != nil || u.Host == "" {
			return nil, fmt.Errorf("invalid upstream URL for %s", name)
		}
		p.upstreams[name] = u
	}
	var err error
	if p.vault, err = vault.Open(core.DB, o.VaultFile, o.VaultKey); err != nil {
		return nil, err
	}
	p.meter = meter.New(meter.NewRecorder(core))
	core.Gates.ProveApprovals(Name, readApproval)
	core.Gates.OnResolved(Name, p.queueCallback)
	return p, nil
}

// rules is what the policy in force looks at, for an agent and the user that it names. Where a layer cannot be read,
// everything is judged, and blocked.
func (p *Proxy) rules(who roster.Identity, of roster.Behalf, under handoff.Standing) *rules {
	in, readable := p.core.Book.Stack(who, of)
	if !readable || under.ID != "" { // a handoff has tools and a budget of its own
		return &rules{prompt: true, tools: true}
	}
	all := p.look(in.Server, "")
	for _, l := range in.Narrower {
		all = all.and(p.look(l.Policy, l.Name))
	}
	return all
}

// maxLooked is how many policies are remembered that were looked at.
const maxLooked = 200

// look is what a policy looks at. It is worked out once; two calls may do so at the same time, with the same result.
func (p *Proxy) look(now *policy.Policy, layer string) *rules {
	var known []*rules
	if last := p.looked.Load(); last != nil {
		known = *last
	}
	if i := slices.IndexFunc(known, func(r *rules) bool { return r.of == now }); i >= 0 {
		return known[i]
	}
	r := rulesOf(now, layer)
	known = slices.Concat([]*rules{r}, known[:min(len(known), maxLooked-1)])
	p.looked.Store(&known)
	return r
}

// Timers count what providers have made and nobody has fetched. Held calls end with their gate, whose timers are the
// gates' own.
func (p *Proxy) Timers() map[string]clock.Handler { return meter.Timers() }

// Run follows the ledger to keep what is in memory up to date, and records the calls that were
// carried, until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	var writing sync.WaitGroup
	writing.Go(func() { p.meter.Run(ctx) })
	defer writing.Wait()
	defer p.transport.CloseIdleConnections()
	for e := range p.core.Ledger.FollowNow(ctx, p.load) {
		if err := p.follow(ctx, &e); err != nil {
			p.core.Log.Error("cannot read ledger entry; ignored", "kind", e.Kind, "error", err.Error())
		}
	}
	return nil
}

// load reads everything that is kept in memory from the tables. It runs before the first entry is
// followed, and again after a follower has lost its place.
func (p *Proxy) load(ctx context.Context) error {
	if err := p.vault.Load(ctx); err != nil {
		return err
	}
	entries, err := p.core.Ledger.Select(ctx, "JOIN proxy_agent a ON a.seq = e.seq")
	if err != nil {
		return err
	}
	for i := range entries {
		if err := p.follow(ctx, &entries[i]); err != nil {
			return err
		}
	}
	if err := p.loadApprovals(ctx); err != nil {
		return err
	}
	if err = p.loadAwaited(ctx); err == nil {
		p.once.Do(func() { close(p.loaded) })
	}
	return err
}

// follow updates what is in memory from an entry, of this node or another. Settings and approvals of
// this node were applied when they were written, and applying them again changes nothing. Uses
// of approvals are taken and given back only here.
func (p *Proxy) follow(ctx context.Context, e *ledger.Entry) error {
	switch e.Kind {
	case kindSet:
		var s configured
		if err := e.Decode(&s); err != nil {
			return err
		}
		p.applySettings(e.Workspace, e.Subject, s)
	case kindKey:
		return p.vault.Load(ctx)
	case kindHeld:
		var b held
		if err := e.Decode(&b); err != nil {
			return err
		}
		p.keepApproval(e.Subject, &b, e.At)
	case kindReleased:
		var b released
		if err := e.Decode(&b); err != nil {
			return err
		}
		if !b.Again {
			p.changeUses(e.Subject, b.Gate, (*gate.Approval).Used)
		}
	case kindReturned:
		var b returned
		if err := e.Decode(&b); err != nil {
			return err
		}
		p.changeUses(b.Call, e.Subject, (*gate.Approval).Returned)
	case kindReceipted:
		var b receipted
		if err := e.Decode(&b); err != nil {
			return err
		}
		p.mu.Lock()
		for _, one := range b.Calls {
			delete(p.awaited, b.Agent+" "+one)
		}
		p.mu.Unlock()
	case kindThreaded:
		var b threaded
		if err := e.Decode(&b); err != nil {
			return err
		}
		p.rememberThread(&b, e.At)
	}
	return nil
}
