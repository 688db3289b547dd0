package proxy

import (
	"context"
	"maps"
	"time"

	"signalbox/internal/gate"
)

// askedAs is what an approval is good for: calls of the agent with this fingerprint.
func askedAs(agentID, fingerprint string) gate.Asked {
	return gate.Asked{Agent: agentID, Key: Name, Digest: fingerprint}
}

// approval is what a call that was held waits for.
func (b *held) approval(fingerprint string, opened time.Time) *gate.Approval {
	a := &gate.Approval{
		Asked: askedAs(b.Agent, fingerprint), Gate: b.Gate, Window: micros(b.GoodFor), Uses: gate.Unlimited,
		Until: b.until(opened),
	}
	if b.Once {
		a.Uses = 1
	}
	return a
}

// until is when the approval is forgotten: by then the gate was decided and the window is over.
func (b *held) until(opened time.Time) time.Time {
	open := micros(b.Open)
	if open == 0 {
		open = mostOpen
	}
	return opened.Add(open + micros(b.GoodFor))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// keepApproval keeps the approval of a call that was held in memory.
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

// forget drops from time to time what is past its time. The proxy is locked.
func (p *Proxy) forget() {
	now := p.core.Now()
	if now.Before(p.forgets) {
		return
	}
	p.forgets = now.Add(10 * time.Minute)
	maps.DeleteFunc(p.approvals, func(_ string, a *gate.Approval) bool { return now.After(a.Until) })
	maps.DeleteFunc(p.awaited, func(_ string, a awaited) bool { return now.After(a.until) })
}

// findApproval finds the approval of a call in memory, which follows the ledger.
func (p *Proxy) findApproval(fp string) *gate.Approval {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.approvals[fp]
}

// takeUse takes one use of an approval in memory. It is replaced, since other calls hold the
// old value.
func (p *Proxy) takeUse(fp, gateID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.approvals[fp]; a != nil && a.Gate == gateID {
		p.approvals[fp] = a.Used()
	}
}

// loadApprovals reads the approvals that are not forgotten.
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
