package spool

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"sync"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

const (
	maxSpools = 200 // of one agent
	maxPlace  = 500 // bytes
)

// Spools are the spools of clients. It is safe for use by many goroutines.
type Spools struct {
	core     protocol.Core
	protocol string
	key      ed25519.PrivateKey

	mu     sync.Mutex
	known  map[string]string // the agents of spools that are registered
	parsed struct {          // the version that a step was last compared with
		number int64
		policy *policy.Policy
	}
}

// New makes the spools of a protocol. Its lists are signed with a key that every node has.
func New(core protocol.Core, name string) *Spools {
	return &Spools{
		core: core, protocol: name, key: ed25519.NewKeyFromSeed(core.Derive("signalbox offline lists")),
		known: map[string]string{},
	}
}

// Greeting is what a client with a spool is told at a handshake.
type Greeting struct {
	Server  string `json:"server"`            // the key of lists
	List    string `json:"list,omitzero"`     // absent if the spool was refused
	Refused string `json:"refused,omitempty"` // why
}

// Greet registers the spool of a client for its agent, and gives it a list.
func (s *Spools) Greet(ctx context.Context, who roster.Identity, raw wire.Raw) (*Greeting, error) {
	g := &Greeting{Server: s.Key()}
	var in struct {
		Key   string `json:"key"`
		Place string `json:"place"`
	}
	isObject := wire.UnmarshalPart(raw, &in) == nil
	switch {
	case !isObject || keyOf(in.Key) == nil || len(in.Place) > maxPlace:
		g.Refused = fmt.Sprintf("spool has a key, which is a public key of Ed25519 in base64url without padding, and a place "+
			"of at most %d bytes.", maxPlace)
		return g, nil
	case who.Suspended:
		g.Refused = "The agent is suspended."
		return g, nil
	}
	if err := s.open(ctx, who, in.Key, in.Place); err != nil {
		if f := fault.From(err); f.Code == fault.Conflict {
			g.Refused = f.Message
			return g, nil
		}
		return nil, err
	}
	list, err := s.list(ctx, who, in.Key)
	g.List = list
	return g, err
}

// agentOf is the agent whose spool it is, "" if nobody has registered it. The entry says so, and not the table.
func agentOf(p ledger.Prover, name string) (agent string, err error) {
	rows, err := store.All(p.Query, number, "SELECT opened_seq FROM harness_spool WHERE spool = $1", name)
	if err != nil || len(rows) == 0 {
		return "", err
	}
	e, err := p.At(rows[0])
	if err != nil {
		return "", err
	}
	var b opened
	if e.Kind != kindOpened || e.Subject != name {
		return "", p.Contradicts("harness_spool", name, "the spool was not registered like that")
	}
	err = e.Decode(&b)
	return b.Agent, err
}

func number(scan store.Scan) (n int64, err error) {
	err = scan(&n)
	return n, err
}

// open registers a spool, once. With fault.Conflict it is that of another agent, or one too many.
func (s *Spools) open(ctx context.Context, who roster.Identity, name, place string) error {
	s.mu.Lock()
	agent := s.known[name]
	s.mu.Unlock()
	if agent == who.ID {
		return nil
	}
	err := s.core.Ledger.Write(ctx, func(tx *ledger.Tx) (err error) {
		if agent, err = agentOf(tx.Prover(), name); err != nil || agent != "" {
			return err
		}
		places, err := store.All(tx.Query, store.Text, "SELECT place FROM harness_spool WHERE agent = $1", who.ID)
		if err != nil {
			return err
		}
		if len(places) >= maxSpools {
			return fault.New(fault.Conflict, "The agent has %d spools already. Use one folder for each machine.", len(places))
		}
		tx.Append(ledger.Event{
			Workspace: who.Workspace, Kind: kindOpened, Actor: who.Actor(), Subject: name, Body: opened{who.ID, place},
		})
		agent = who.ID
		for _, before := range places {
			if before == place && place != "" {
				return alarm.Raise(tx, alarm.Alarm{
					Workspace: who.Workspace, Kind: "spool_replaced", Agent: who.ID,
					Title: "The record of what an agent did without the server was replaced",
					Detail: "There is a new spool where another was (" + place + "). What the old one had and did not send is " +
						"gone. If nobody of you removed it, look at what the agent did while the server was away.",
				})
			}
		}
		return nil
	})
	if err == nil && agent != who.ID {
		return s.foreign(ctx, who)
	}
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.known) > 10_000 {
			clear(s.known)
		}
		s.known[name] = who.ID
	}
	return err
}

// foreign refuses a spool of another agent, with an alarm.
func (s *Spools) foreign(ctx context.Context, who roster.Identity) error {
	err := s.core.Alarms.Raise(ctx, alarm.Alarm{
		Workspace: who.Workspace, Kind: "spool_foreign", Agent: who.ID,
		Title: "An agent used the spool of another",
		Detail: "A spool is what one agent did while the server was away. This agent showed the one of another, whose " +
			"folder it can read. Nothing was taken from it. Give each agent a folder and a user of its own.",
	})
	if err != nil {
		return err
	}
	return fault.New(fault.Conflict, "This spool belongs to another agent. Use a folder of your own.")
}
