package kin

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/proc"
	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// conn is what is known about one connection of HTTP. Who is at its other end is looked up for the
// first call that asks, since that takes milliseconds.
type conn struct {
	addresses proc.Addresses
	spoke     atomic.Bool // an agent, so its process is known

	mu    sync.Mutex
	found proc.Peer
}

var carried wire.Carried[*conn]

// WithConn is for http.Server.ConnContext: calls on the connection know where they come from.
func WithConn(ctx context.Context, c net.Conn) context.Context {
	parse := func(a net.Addr) netip.AddrPort { p, _ := netip.ParseAddrPort(a.String()); return p }
	one := &conn{addresses: proc.Addresses{Ours: parse(c.LocalAddr()), Theirs: parse(c.RemoteAddr())}}
	return carried.With(ctx, one)
}

// connOf is the connection of a call, nil for one that did not come over HTTP.
func connOf(ctx context.Context) *conn { return carried.Of(ctx) }

// peer is who is at the other end. A process that was seen is looked for again only when it has ended:
// another may have its connection then.
func (c *conn) peer() proc.Peer {
	if c == nil {
		return proc.Peer{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found.Sight != proc.Seen || !c.found.ID.Lives() {
		c.found = proc.TCPPeer(c.addresses)
	}
	return c.found
}

// SpeaksHTTP is Speaks for a call over HTTP. It costs nothing after the first call of a connection.
func (k *Kin) SpeaksHTTP(ctx context.Context, who roster.Identity, session string) {
	if c := connOf(ctx); k != nil && c != nil && !c.spoke.Swap(true) {
		k.Speaks(ctx, c.peer(), who, session)
	}
}

// refused is the body of operator.refused.
type refused struct {
	Call     string `json:"call"`
	Operator string `json:"operator,omitzero"`
	Session  string `json:"session,omitzero"`
	Root     string `json:"root"`
	// Line is the process that called and those that started it, up to the agent's.
	Line []link `json:"line,omitzero"`
}

type link struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`
}

// Check refuses a call that an agent's process makes with the power of an operator. The caller has
// authenticated it, and knows that it decides or changes something.
func (k *Kin) Check(ctx context.Context, r *http.Request, who roster.Identity) error {
	if k == nil {
		return nil
	}
	peer := connOf(ctx).peer()
	whose, pid, known := k.whose(peer)
	switch {
	case whose != nil:
		k.record(ctx, r.Method+" "+r.URL.Path, who, whose, pid)
		return fault.New(fault.AgentsProcess,
			"An agent does not decide about itself: this call comes from the process of an agent, or from one that cannot be "+
				"told apart from it (%s). A person makes it from a terminal or a browser that no agent has started.", whose)
	case !known:
		return fault.New(fault.AgentsProcess,
			"The process that made this call is gone or cannot be seen, so that nobody can tell whether it is an agent's. Wait "+
				"for the answer, and call from a process whose files the server may look at.")
	case peer.Sight == proc.Seen:
		k.mu.Lock()
		k.acted[peer.ID] = true
		k.mu.Unlock()
	}
	return nil
}

// whose is the root that a peer belongs to, nil for none, and the process that does. A peer that does
// not let us see what it has open is one of those that do not: if one of them is an agent's, it is
// taken for that. It is false if nobody can tell: the peer is gone, or hides where agents are known.
func (k *Kin) whose(peer proc.Peer) (r *Root, pid int, known bool) {
	switch peer.Sight {
	case proc.Seen:
		r, known = k.owner(peer.ID)
		return r, peer.ID.PID, known
	case proc.Gone:
		return nil, 0, false
	case proc.Hidden:
		if peer.UID != k.uid && peer.UID != 0 {
			return nil, 0, true // all processes of other users hide, those of people too
		}
		for _, p := range proc.Unreadable(peer.UID) {
			if r, _ := k.owner(p.ID); r != nil {
				return r, p.PID, true
			}
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		return nil, 0, len(k.roots) == 0
	}
	return nil, 0, true
}

// tellEvery is how often the same call of the same agent is recorded.
const tellEvery = time.Minute

// record appends operator.refused, and raises an alarm.
func (k *Kin) record(ctx context.Context, call string, who roster.Identity, whose *Root, pid int) {
	k.mu.Lock()
	key := call + " " + whose.String()
	known := time.Since(k.told[key]) < tellEvery
	if len(k.told) > 1000 {
		clear(k.told) // an agent that tries that many is recorded more often
	}
	if !known {
		k.told[key] = time.Now()
	}
	k.mu.Unlock()
	if known {
		return
	}
	body := refused{Call: call, Operator: who.Name, Session: whose.Session, Root: whose.String()}
	for _, p := range proc.Line(pid) {
		body.Line = append(body.Line, link{p.PID, command(p.ID)})
		if p.ID == whose.ID || len(body.Line) == maxLine {
			break
		}
	}
	actor := system
	if whose.Agent != "" {
		actor = string(roster.HolderAgent) + ":" + whose.Agent
	}
	err := k.Ledger.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error {
		tx.Append(ledger.Event{
			Workspace: whose.workspace, Kind: kindRefused, Actor: actor, Subject: whose.Agent, Trace: whose.Session, Body: body,
		})
		return alarm.Raise(tx, alarm.Alarm{
			Workspace: whose.workspace, Kind: "operator_refused", Agent: whose.Agent,
			Title: "An agent tried to act as an operator",
			Detail: "It was refused, and nothing was changed. The first try was " + call + ", by process " + whose.String() +
				". Every try is in the ledger as " + kindRefused + ". If you made this call yourself, make it from a " +
				"terminal or a browser that no agent has started.",
		})
	})
	if err != nil {
		k.Log.Error("cannot record that an agent tried to act as an operator", "call", call, "error", err.Error())
	}
}

// maxLine is how many processes of a line are recorded.
const maxLine = 20

// raise raises an alarm outside of a transaction.
func (k *Kin) raise(ctx context.Context, a alarm.Alarm) {
	if err := k.Alarms.Raise(context.WithoutCancel(ctx), a); err != nil {
		k.Log.Error("cannot raise an alarm", "alarm", a.Title, "error", err.Error())
	}
}
