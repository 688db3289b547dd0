package kin

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/proc"
	"signalbox/internal/roster"
	"signalbox/internal/store"
)

// The kinds of entries. The bodies of those that the watch goes by are kept as long as the ledger.
const (
	kindSeen      = "process.seen"
	kindRefused   = "operator.refused"
	kindInstalled = "hook.installed"
	kindRemoved   = "hook.removed"
	kindChanged   = "file.changed"
)

// system is the actor of what nobody has reported.
const system = "system"

// Said are the kinds of entries that hold command lines, in which there may be credentials.
func Said() []string { return []string{kindSeen, kindRefused} }

// Projection keeps the bodies that a start reads. There is no table: what they say is about this
// machine, and in memory while the server runs.
func Projection() ledger.Projection {
	keep := func(*store.Tx, *ledger.Entry) error { return nil }
	return ledger.Projection{Name: "kin", Apply: map[string]ledger.Apply{
		kindSeen: keep, kindInstalled: keep, kindRemoved: keep, kindChanged: keep,
	}}
}

// Options are what the wall and the watch stand on.
type Options struct {
	Ledger *ledger.Ledger
	Roster *roster.Roster
	Alarms *alarm.Alarms
	Log    *slog.Logger
	Watch  Watch
}

// Kin is the wall between agents and operators on this machine. It is safe for concurrent use. A nil
// Kin knows no agent and refuses nobody: it is what tests of one protocol have.
type Kin struct {
	Options
	self  int
	uid   int
	boot  string
	above map[proc.ID]bool // what has started the server

	mu    sync.Mutex
	roots map[proc.ID]*Root
	// below are the processes that the last look found below a root, and whose they were.
	below map[proc.ID]*Root
	// acted are processes that have acted for an operator: a program that does so before it speaks as
	// an agent is a person's tool.
	acted map[proc.ID]bool
	// told are refusals that have an entry, by root and call, with the time of the last.
	told map[string]time.Time

	watch  watch
	loaded chan struct{} // closed when Load is done
}

// New makes the wall. It knows nobody until Load has read the ledger.
func New(o Options) *Kin {
	k := &Kin{
		Options: o, self: os.Getpid(), uid: os.Getuid(), boot: proc.Boot(), above: above(), roots: map[proc.ID]*Root{},
		below: map[proc.ID]*Root{}, acted: map[proc.ID]bool{}, told: map[string]time.Time{},
		loaded: make(chan struct{}),
	}
	k.watch.stats, k.watch.wrong = map[string]stamp{}, map[string]bool{}
	return k
}

// maxLoad is how many roots of one run of the machine are read at a start.
const maxLoad = 10_000

// Load reads what earlier runs of the server have seen, and refuses to go on in a server that an
// agent has started. It is called before the first call is answered.
func (k *Kin) Load(ctx context.Context) error {
	entries, err := k.Ledger.Entries(ctx, ledger.Query{
		Kinds: []string{kindSeen}, Subject: k.boot, Limit: maxLoad, Newest: true,
	})
	if err != nil {
		return err
	}
	k.mu.Lock()
	for _, e := range entries {
		var r Root
		if err := e.Decode(&r); err != nil {
			k.mu.Unlock()
			return err
		}
		r.workspace = e.Workspace
		k.roots[r.ID] = &r
	}
	k.mu.Unlock()
	if err := k.loadWatch(ctx); err != nil {
		return err
	}
	k.look(ctx)
	k.watchFiles(ctx)
	defer close(k.loaded)
	own, _ := proc.Read(k.self)
	if r, _ := k.owner(own.ID); r != nil {
		k.raise(ctx, alarm.Alarm{
			Workspace: r.workspace, Kind: "started_by_agent", Agent: r.Agent,
			Title:  "An agent tried to start the server",
			Detail: "Process " + r.String() + " is the agent's. Look at what it did: the server was stopped before.",
		})
		return fault.New(fault.AgentsProcess,
			"This server was started by a process of an agent, or cannot be told apart from one: %s. Start it from a "+
				"terminal or a service in which no agent runs.", r)
	}
	return nil
}

// owner is the root that a process belongs to, nil for none. It looks at the processes as they are. It is false for a
// process that has ended, or whose parents cannot be read: nobody can tell whose that is.
func (k *Kin) owner(id proc.ID) (r *Root, known bool) {
	line := proc.Line(id.PID)
	if len(line) == 0 || line[0].ID != id {
		return nil, false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range line {
		// A process that was below a root is an agent's, whoever its parent is now.
		if r := k.below[p.ID]; r != nil {
			return r, true
		}
	}
	self := k.self
	if id.PID == self {
		self = 0
	}
	return belongs(line, k.roots, self), true
}

// Speaks is told that an agent speaks through a connection, once for each. The agent's process
// becomes a root.
func (k *Kin) Speaks(ctx context.Context, peer proc.Peer, who roster.Identity, session string) {
	if k == nil || peer.Sight != proc.Seen {
		return
	}
	line := proc.Line(peer.ID.PID)
	if len(line) == 0 || line[0].ID != peer.ID {
		return
	}
	if found, ok := client(line); ok {
		r := newRoot(found)
		r.Agent, r.Session, r.workspace = who.ID, session, who.Workspace
		k.mu.Lock()
		r.Below = found.ID == peer.ID && k.acted[found.ID]
		k.mu.Unlock()
		k.add(ctx, r, line)
	}
}

// Supervises is told that the process that makes a call watches a run: what it starts is an agent's.
func (k *Kin) Supervises(ctx context.Context) {
	if k == nil {
		return
	}
	peer := connOf(ctx).peer()
	if p, ok := proc.Read(peer.ID.PID); ok && peer.Sight == proc.Seen && p.ID == peer.ID {
		r := newRoot(p)
		r.Below = true
		k.add(ctx, r, proc.Line(p.PID))
	}
}

// add makes a process a root, unless it is known, or has started the server, or is below a root
// already.
func (k *Kin) add(ctx context.Context, r Root, line []proc.Process) {
	k.mu.Lock()
	known := k.roots[r.ID] != nil || k.above[r.ID]
	if !known && !r.Left {
		whose := belongs(line, k.roots, k.self)
		known = whose != nil && !whose.Below
	}
	if !known {
		k.roots[r.ID] = &r
	}
	k.mu.Unlock()
	if known {
		return
	}
	err := k.Ledger.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{Workspace: r.workspace, Kind: kindSeen, Actor: system, Subject: k.boot, Body: r})
		return nil
	})
	if err != nil {
		// It holds in this process all the same; only a restart would forget it.
		k.Log.Warn("cannot record the process of an agent", "process", r.PID, "error", err.Error())
	}
}

// lookEvery is how often processes and files are looked at.
const lookEvery = 2 * time.Second

// keepEnded is how long a root is kept after its end, in seconds.
const keepEnded = 24 * 3600

// Run watches until ctx ends, from the end of Load on.
func (k *Kin) Run(ctx context.Context) error {
	select {
	case <-k.loaded:
	case <-ctx.Done():
		return nil
	}
	every := time.NewTicker(lookEvery)
	defer every.Stop()
	for {
		select {
		case <-every.C:
			k.look(ctx)
			k.watchFiles(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// look remembers what is below a root, so that a process that leaves its parents stays known, and
// notes which roots have ended.
func (k *Kin) look(ctx context.Context) {
	k.mu.Lock()
	idle := len(k.roots) == 0
	k.mu.Unlock()
	if idle {
		return // a server without agents does not read /proc
	}
	all := map[int]proc.Process{}
	for _, p := range proc.All() {
		all[p.PID] = p
	}
	now := proc.Now()
	k.mu.Lock()
	below := map[proc.ID]*Root{}
	var left []Root
	for _, p := range all {
		if r := belongs(lineIn(all, p), k.roots, k.self); r != nil {
			below[p.ID] = r
		} else if was := k.below[p.ID]; was != nil {
			// It was below a root, and is not now: the agent has left it behind.
			left = append(left, was.leaves(p))
		}
	}
	k.below = below
	for id, r := range k.roots {
		if p, lives := all[id.PID]; lives && p.Start == id.Start {
			continue
		}
		if r.ended == 0 {
			r.ended = now
		}
		if proc.SecondsBetween(r.ended, now) > keepEnded {
			left = append(left, k.forget(r)...)
		}
	}
	maps.DeleteFunc(k.acted, func(id proc.ID, _ bool) bool { p, ok := all[id.PID]; return !ok || p.Start != id.Start })
	k.mu.Unlock()
	for _, r := range left {
		k.add(ctx, r, nil)
	}
}

// forget drops a root that has ended long ago. What it left behind and still runs becomes a root of
// its own.
func (k *Kin) forget(r *Root) (left []Root) {
	delete(k.roots, r.ID)
	for id, whose := range k.below {
		if p, ok := proc.Read(id.PID); ok && whose == r && p.ID == id {
			left = append(left, r.leaves(p))
		}
	}
	return left
}

// lineIn is the process and those that started it, in a list that was read before.
func lineIn(all map[int]proc.Process, p proc.Process) []proc.Process {
	line := []proc.Process{p}
	for len(line) < 1000 {
		parent, ok := all[p.Parent]
		if !ok {
			break
		}
		line, p = append(line, parent), parent
	}
	return line
}
