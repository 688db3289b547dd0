package proxy

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/protocol"
)

// Name is the protocol's name in rules, and in the origin of gates.
const Name = "proxy"

// Protocol is the model proxy of AMP v1.0, for the server's list.
func Protocol() protocol.Protocol {
	return protocol.Protocol{
		Name: Name, Label: "Model proxy",
		Migrations: Migrations, Projection: Projection(), Readers: Readers(), Counters: Counters(),
	}
}

// Options are what an operator sets, and what the proxy asks of signals.
type Options struct {
	VaultKey  []byte            // encrypts the vault
	Upstreams map[string]string // the address of each provider
	// Price is what tokens of a model cost, in nano-dollars; false when it is not known.
	Price func(model string, input, output, cacheRead, cacheWrite int64) (int64, bool)
	// Webhook is where an agent hears of decisions, "" for nowhere, and the generation of its
	// secret.
	Webhook func(agentID string) (target string, generation int)

	Beat  time.Duration // between signs of life; 12 s
	Quiet time.Duration // how long a call is held before its status is sent, at the most; 100 s
	Hold  time.Duration // how long a call is held, for agents that do not say; 9 min
	Idle  time.Duration // how long a provider may say nothing; 10 min
}

// Proxy carries calls to providers.
type Proxy struct {
	Options
	core      protocol.Core
	upstreams map[string]*url.URL
	transport *http.Transport
	vault     *vault
	recorder  *recorder
	ruling    atomic.Pointer[rules]

	mu        sync.RWMutex
	settings  map[string]Settings      // by the agent's id
	owners    map[string]binding       // by the fingerprint of a provider's key
	awaited   map[string]awaited       // gates whose receipts are awaited, by agent and call
	forgets   time.Time                // when forget is due
	threads   map[string]known         // what conversations that providers keep may use
	announced map[string]chan struct{} // calls whose gate is about to be opened

	approvals map[string]*gate.Approval // by the fingerprint of a call
}

// New makes the proxy over a core whose ledger has Projection. Run must be running.
func New(core protocol.Core, o Options) (*Proxy, error) {
	for _, d := range []struct {
		of     *time.Duration
		absent time.Duration
	}{
		{&o.Beat, 12 * time.Second},
		{&o.Quiet, 100 * time.Second},
		{&o.Hold, 9 * time.Minute},
		{&o.Idle, 10 * time.Minute},
	} {
		if *d.of == 0 {
			*d.of = d.absent
		}
	}
	p := &Proxy{
		Options: o, core: core, upstreams: map[string]*url.URL{},
		settings: map[string]Settings{}, owners: map[string]binding{}, approvals: map[string]*gate.Approval{},
		awaited: map[string]awaited{},
		threads: map[string]known{}, announced: map[string]chan struct{}{},
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
	if p.vault, err = openVault(core.DB, o.VaultKey); err != nil {
		return nil, err
	}
	p.recorder = newRecorder(p)
	core.Gates.OnResolved(Name, p.queueCallback)
	return p, nil
}

// rules are those of the policy in force.
func (p *Proxy) rules() *rules {
	number, now := p.core.Book.Policy()
	if r := p.ruling.Load(); r != nil && r.number == number {
		return r
	}
	r := rulesOf(number, now)
	p.ruling.Store(r)
	return r
}

// Timers returns none: what the proxy waits for ends with its gate.
func (p *Proxy) Timers() map[string]clock.Handler { return nil }

// Run follows the ledger to keep what is in memory up to date, and records the calls that were
// carried, until ctx ends.
func (p *Proxy) Run(ctx context.Context) error {
	var writing sync.WaitGroup
	writing.Go(func() { p.recorder.run(ctx) })
	defer writing.Wait()
	defer p.transport.CloseIdleConnections()
	for e := range p.core.Ledger.FollowNow(ctx, p.load) {
		if err := p.follow(ctx, &e); err != nil {
			p.core.Log.Error("an entry cannot be read and is ignored", "kind", e.Kind, "error", err.Error())
		}
	}
	return nil
}

// load reads the state that is kept in memory.
func (p *Proxy) load(ctx context.Context) error {
	if err := p.vault.load(ctx); err != nil {
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
	return p.loadAwaited(ctx)
}

// follow updates what is in memory from an entry, of this node or another.
func (p *Proxy) follow(ctx context.Context, e *ledger.Entry) error {
	switch e.Kind {
	case kindSet:
		var s configured
		if err := e.Decode(&s); err != nil {
			return err
		}
		p.applySettings(e.Workspace, e.Subject, s)
	case kindKey:
		return p.vault.load(ctx)
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
		p.takeUse(e.Subject, b.Gate)
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
