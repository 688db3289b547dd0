package notify

import (
	"context"
	"strings"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// mailbox is where a notice goes: a configured channel, or one person in it.
type mailbox struct {
	Channel
	of      Channel // the one that is configured
	contact string  // of the person, "" for the channel itself
}

// personal is the first channel of the kind that can write to one person, nil if there is none.
func (n *Notifier) personal(kind string) (c Channel, to Personal) {
	for _, c := range n.Channels {
		if to, ok := c.(Personal); ok && c.Name() == kind {
			return c, to
		}
	}
	return nil, nil
}

// person is the channel to one person, nil if none of the kind is configured.
func (n *Notifier) person(kind, contact string) Channel {
	if _, to := n.personal(kind); to != nil {
		return to.Person(contact)
	}
	return nil
}

// mailboxesAsked finds the people whom each step of a gate's ladder asks, wherever they have a
// contact and a channel of that kind is configured. Someone who is a configured channel of their
// own, such as an address in notify.email.to, is left out: they are told there.
func (n *Notifier) mailboxesAsked(ctx context.Context, entries []ledger.Entry) (map[int64][]mailbox, error) {
	found := map[int64][]mailbox{}
	var people []roster.Person
	for i := range entries {
		e := &entries[i]
		if e.Kind != Escalated {
			continue
		}
		if people == nil {
			var err error
			if people, err = n.roster.Operators(ctx, ""); err != nil {
				return nil, err
			}
		}
		g, err := n.gates.Get(ctx, e.Subject)
		if err != nil {
			return nil, err
		}
		whom, err := peopleAsked(people, e, g)
		if err != nil {
			return nil, err
		}
		for _, p := range whom {
			for _, kind := range roster.ContactChannels() {
				of, to := n.personal(kind)
				if to == nil || p.Contacts[kind] == "" {
					continue
				}
				if c := to.Person(p.Contacts[kind]); n.byTarget[c.Target()] == nil {
					found[e.Seq] = append(found[e.Seq], mailbox{c, of, p.Contacts[kind]})
				}
			}
		}
	}
	return found, nil
}

// peopleAsked are the operators whom a step of the ladder is for and who may see the gate. A
// reminder without names is for everybody who may decide.
func peopleAsked(people []roster.Person, escalated *ledger.Entry, g gate.Gate) ([]roster.Person, error) {
	var body struct {
		Step gate.Step `json:"step"`
	}
	if err := wire.UnmarshalPart(escalated.Body, &body); err != nil {
		return nil, err
	}
	whom := body.Step.Whom
	if len(whom) == 0 && body.Step.Do == gate.Remind {
		whom = g.Approvers
	}
	if len(whom) == 0 {
		return nil, nil
	}
	rules := gate.Rules{Approvers: whom}
	var found []roster.Person
	for _, p := range people {
		if (p.Workspace == "" || p.Workspace == g.Workspace) && rules.MayDecide(p) {
			found = append(found, p)
		}
	}
	return found, nil
}

// peopleNotified are the people who were told personally that gates wait which are resolved now,
// by gate. They hear the outcome, too.
func (n *Notifier) peopleNotified(tx *ledger.Tx, entries []ledger.Entry) (map[string][]mailbox, error) {
	found := map[string][]mailbox{}
	var gates []any
	for i := range entries {
		if entries[i].Kind == Resolved {
			gates = append(gates, entries[i].Subject)
		}
	}
	if len(gates) == 0 {
		return found, nil
	}
	err := store.Each(tx.Query, func(scan store.Scan) error {
		var gateID, target, contact string
		if err := scan(&gateID, &target, &contact); err != nil {
			return err
		}
		kind, _, _ := strings.Cut(target, ":")
		if of, to := n.personal(kind); to != nil {
			found[gateID] = append(found[gateID], mailbox{to.Person(contact), of, contact})
		}
		return nil
	}, "SELECT DISTINCT gate, channel, contact FROM notice WHERE contact <> '' AND gate IN ("+store.Marks(1, len(gates))+
		") ORDER BY gate, channel", gates...)
	return found, err
}
