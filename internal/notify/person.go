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

// mailbox is where a notice goes: a channel that is configured, or one person in it.
type mailbox struct {
	Channel
	of      Channel // the one that is configured
	contact string  // of the person, "" for the channel itself
}

// personal is the first channel of the kind that can write to one person, nil when there
// is none.
func (n *Notifier) personal(kind string) (c Channel, to Personal) {
	for _, c := range n.Channels {
		if to, ok := c.(Personal); ok && c.Name() == kind {
			return c, to
		}
	}
	return nil, nil
}

// person is the channel to one person, nil when none of the kind is configured.
func (n *Notifier) person(kind, contact string) Channel {
	if _, to := n.personal(kind); to != nil {
		return to.Person(contact)
	}
	return nil
}

// personally finds those whom each step of a ladder asks, wherever they can be reached.
// Where a configured channel is theirs alone, they are told there already.
func (n *Notifier) personally(ctx context.Context, entries []ledger.Entry) (map[int64][]mailbox, error) {
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
		whom, err := asked(people, e, g)
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

// asked are those whom a step is for, and who may see the gate.
func asked(people []roster.Person, escalated *ledger.Entry, g gate.Gate) ([]roster.Person, error) {
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

// toldPersonally are those who were told that gates wait which are resolved now, by gate.
func (n *Notifier) toldPersonally(tx *ledger.Tx, entries []ledger.Entry) (map[string][]mailbox, error) {
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
