package proxy

import (
	"context"
	"net/http"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
)

const (
	// replyWindow is how long a decision stands for the same call, where the rule does not say.
	replyWindow = time.Hour
	// mostOpen is how long a gate waits, where the rule does not say. After that, no client comes
	// back for a model's answer.
	mostOpen = 24 * time.Hour
	// resultsAwaited is how long the result of a released call is expected.
	resultsAwaited = 30 * 24 * time.Hour
)

// held is the body of proxy.held. Its subject is the fingerprint.
type held struct {
	Agent   string       `json:"agent"`
	Gate    string       `json:"gate"`
	What    policy.Point `json:"what"`
	GoodFor int64        `json:"good_for"`      // microseconds
	Open    int64        `json:"open,omitzero"` // microseconds that the gate waits at the most
	Once    bool         `json:"once,omitzero"`
	Calls   []string     `json:"calls,omitzero"` // the ids of the calls that were gated
}

// kept is the body of proxy.kept: the provider's reply. Its subject is the gate.
type kept struct {
	Status   int                 `json:"status"`
	Header   map[string][]string `json:"header"`
	Body     []byte              `json:"body"`
	Withheld int                 `json:"withheld"` // from which byte on
}

// answerCall answers a call. One that has an approval goes on from there, whichever call opened
// it. Gates are waited for here and nowhere deeper, so that a call that is held keeps nothing of
// its request and reply in memory.
func (x *exchange) answerCall() error {
	a := x.p.findApproval(x.fp)
	for {
		var next *gate.Approval
		var err error
		done := true
		if a != nil {
			next, done, err = x.waitForGate(a)
		} else if opened := x.p.announcedGate(x.fp); opened != nil {
			select {
			case <-opened:
				a = x.p.findApproval(x.fp)
				continue
			case <-x.r.Context().Done():
				return errGone
			}
		} else {
			next, err = x.askPolicy()
		}
		switch {
		case err != nil || next == nil && done:
			return err
		case !done && (x.sent || x.out.committed):
			return fault.New(fault.Conflict, "The approval was used meanwhile. Send the call again.")
		case !done:
			x.past = a.Gate
		}
		a = next
	}
}

// announcedGate is closed when the gate of the call is open; it is nil if none is announced.
func (p *Proxy) announcedGate(fp string) chan struct{} {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.announced[fp]
}

// announceGate lets others with the same call wait for the gate that this one is about to open,
// until opened is called.
func (x *exchange) announceGate() (opened func()) {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	if x.p.announced[x.fp] != nil {
		return func() {}
	}
	wait := make(chan struct{})
	x.p.announced[x.fp] = wait
	return func() {
		x.p.mu.Lock()
		defer x.p.mu.Unlock()
		if x.p.announced[x.fp] == wait {
			delete(x.p.announced, x.fp)
			close(wait)
		}
	}
}

// withholdReply opens one gate for all calls in a reply that need one.
func (x *exchange) withholdReply(gates []gated, k *kept, opened func()) (*gate.Approval, error) {
	defer opened()
	spec, ok := strictest(gates)
	if !ok {
		d := gates[0].decision
		d.Reason = "The rules " + gates[0].decision.Rule +
			" and others ask different people about this reply, and nobody may decide all of it. It is refused."
		d.Record.Then, d.Record.Reason = policy.Block, d.Reason
		d.Action = policy.Block
		return nil, x.refuseCall(d)
	}
	return x.openGate(gates, x.toolOpening(gates, k.Body[k.Withheld:]), spec, k)
}

// openGate opens the gate of a call: what was decided, what is kept, and the gate are one
// transaction. Another call with the same fingerprint that was faster keeps its gate.
func (x *exchange) openGate(gates []gated, o gate.Opening, spec policy.GateSpec, reply *kept) (*gate.Approval, error) {
	if spec.Expires <= 0 {
		spec.Expires = mostOpen
	}
	b := &held{
		Agent: x.who.ID, Gate: gate.NewID(), What: policy.OnPrompt, GoodFor: spec.Window.Microseconds(),
		Open: spec.Expires.Microseconds(), Once: spec.SingleUse,
	}
	if b.GoodFor == 0 {
		b.GoodFor = replyWindow.Microseconds()
	}
	target, _ := x.p.Webhook(x.who.ID)
	o.Project, o.Agent, o.AgentName, o.Requester, o.Risk = x.project, x.who.ID, x.who.Name, x.who.Actor(), spec.Risk
	o.Origin = gate.Origin{Protocol: Name, Reference: x.reference(), Callback: target}
	o.Rules = gate.RulesOf(&spec)
	due, err := gate.Prepare(o)
	if err != nil {
		return nil, err
	}
	for _, g := range gates {
		if g.ID != "" {
			b.Calls = append(b.Calls, clean(g.ID))
		}
	}
	var body ledger.Body
	if reply != nil {
		b.What = policy.OnToolCall
		if body, err = ledger.Encode(reply); err != nil {
			return nil, err
		}
	}
	var stands *gate.Approval
	err = x.p.core.Ledger.Write(context.WithoutCancel(x.r.Context()), func(tx *ledger.Tx) (err error) {
		stands, err = b.approval(x.fp, tx.Now()).Open(tx, x.past, func() {
			for _, g := range gates {
				tx.Append(x.decisionEntry(g.decision))
			}
			if reply != nil {
				tx.Append(ledger.Event{
					Workspace: x.who.Workspace, Kind: kindKept, Actor: "system", Subject: b.Gate, Trace: x.trace(),
					Body: body,
				})
			}
			tx.Append(ledger.Event{
				Workspace: x.who.Workspace, Kind: kindHeld, Actor: x.who.Actor(), Subject: x.fp, Trace: x.trace(),
				Body: b,
			})
			due.Open(tx, b.Gate, x.who.Workspace, x.trace())
		})
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case stands.Gate == b.Gate:
		x.p.keepApproval(x.fp, b, x.p.core.Now())
	case x.out.given > 0: // the client has the beginning of another reply
		return nil, fault.New(fault.Conflict, "The same call is held already. Send it again to wait for its gate.")
	}
	return stands, nil
}

// storedHeader is the header of a reply that is kept, without cookies and hop-by-hop headers.
func storedHeader(h http.Header) map[string][]string {
	out := h.Clone()
	dropHops(out)
	out.Del("Content-Length")
	out.Del("Set-Cookie")
	return out
}

// queueCallback queues the webhook in the transaction that resolves the gate.
func (p *Proxy) queueCallback(tx *ledger.Tx, g gate.Gate) error {
	_, generation := p.Webhook(g.AgentID())
	return deliver.QueueCallback(tx, g, generation)
}
