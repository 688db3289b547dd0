package proxy

import (
	"context"
	"maps"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
)

// askedAs is what an approval is bound to: calls of the agent with this fingerprint.
func askedAs(agentID, fingerprint string) gate.Asked {
	return gate.Asked{Agent: agentID, Key: Name, Digest: fingerprint}
}

// approval is the approval that a held call waits for. It follows from the entry alone, so that every
// node, and a rebuild, makes the same.
func (b *held) approval(fingerprint string, opened time.Time) *gate.Approval {
	return &gate.Approval{
		Asked: askedAs(b.Agent, fingerprint), Gate: b.Gate, Window: micros(b.GoodFor), Uses: gate.UsesOf(b.Uses, b.Once),
		Until: b.until(opened),
	}
}

// readApproval reads the approval of a call from the entries about it.
func readApproval(p ledger.Prover, a gate.Asked, by *gate.Gate) (found *gate.Approval, err error) {
	entries, err := p.Entries(ledger.Query{
		After: by.Held(), Subjects: []string{a.Digest, by.ID}, Kinds: []string{kindHeld, kindReleased, kindReturned},
	})
	for i := 0; i < len(entries) && err == nil; i++ {
		switch e := &entries[i]; e.Kind {
		case kindHeld:
			var b *held
			if b, err = ledger.Read[held](e); err == nil && b.Gate == by.ID && b.Agent == a.Agent {
				found = b.approval(a.Digest, e.At)
			}
		case kindReleased:
			var b *released
			if b, err = ledger.Read[released](e); err == nil && b.Gate == by.ID && !b.Again && found != nil {
				found = found.Used()
			}
		default:
			if e.Subject == by.ID && found != nil {
				found = found.Returned()
			}
		}
	}
	return found, err
}

// until is when the approval may be forgotten: the gate has been decided or has expired by then, and
// the window after the decision is over.
func (b *held) until(opened time.Time) time.Time {
	open := micros(b.Open)
	if open == 0 {
		open = mostOpen
	}
	return opened.Add(open + micros(b.GoodFor))
}

// micros is a number of microseconds, as entries store them.
func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// keepApproval keeps the approval of a held call in memory, and which results its calls may have. An
// entry that comes a second time, from the follower, must not give back uses that were taken.
func (p *Proxy) keepApproval(fp string, b *held, at time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
	if a := p.approvals[fp]; a != nil && a.Gate == b.Gate {
		return
	}
	p.approvals[fp] = b.approval(fp, at)
	for _, one := range b.Calls {
		p.awaited[b.Agent+" "+one] = awaited{b.Gate, at.Add(resultsAwaited)}
	}
}

// forget drops approvals and awaited results that are past their time, at most every ten minutes,
// since it goes through all of them. The caller holds mu.
func (p *Proxy) forget() {
	now := p.core.Now()
	if now.Before(p.forgets) {
		return
	}
	p.forgets = now.Add(10 * time.Minute)
	maps.DeleteFunc(p.approvals, func(_ string, a *gate.Approval) bool { return now.After(a.Until) })
	maps.DeleteFunc(p.awaited, func(_ string, a awaited) bool { return now.After(a.until) })
	maps.DeleteFunc(p.given, func(_ string, g given) bool { return now.After(g.at.Add(retryTime)) })
}

// findApproval finds the approval of a call, nil if there is none, in memory. A node that has not yet
// followed another's entry does not find it, and openGate does.
func (p *Proxy) findApproval(fp string) *gate.Approval {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.approvals[fp]
}

// givenBack is an approval without uses as the table has it, if it has got one back: what is in memory follows the
// ledger, and an SDK may send its call again before that. It is nil if it has not.
func (p *Proxy) givenBack(ctx context.Context, a *gate.Approval) *gate.Approval {
	now, err := p.core.Gates.Find(ctx, a.Asked)
	if err != nil || now == nil || a.Uses != 0 || now.Uses == 0 || now.Gate != a.Gate {
		return nil
	}
	return now
}

// changeUses takes a use of an approval in memory, or gives it back. The value is replaced and not
// changed, since other calls hold it without a lock.
func (p *Proxy) changeUses(fp, gateID string, change func(*gate.Approval) *gate.Approval) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.approvals[fp]; a != nil && a.Gate == gateID {
		p.approvals[fp] = change(a)
	}
}

// loadApprovals reads the approvals that are not forgotten, in place of those in memory.
func (p *Proxy) loadApprovals(ctx context.Context) error {
	all, err := p.core.Gates.Remembered(ctx, Name, p.core.Now())
	if err != nil {
		return err
	}
	byCall := make(map[string]*gate.Approval, len(all))
	for i := range all {
		byCall[all[i].Digest] = &all[i]
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.approvals = byCall
	return nil
}
