package proxy

import (
	"context"
	"net/http"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/policy/layer"
)

const (
	// replyWindow is how long a decision holds for the same call, unless the rule sets good_for (PRX-40).
	replyWindow = time.Hour
	// mostOpen is how long a gate waits, unless the rule sets expires (PRX-44). No client comes back
	// later for a model's answer.
	mostOpen = 24 * time.Hour
	// resultsAwaited is how long the result of a released tool call may take to become a receipt.
	resultsAwaited = 30 * 24 * time.Hour
)

// held is the body of proxy.held: a call has a gate. Its subject is the fingerprint. The approval
// that the call waits for follows from it (approval).
type held struct {
	behalf.Of              // on whose behalf
	Agent     string       `json:"agent"` // its id
	Gate      string       `json:"gate"`
	What      policy.Point `json:"what"`           // prompt or tool_call: what the gate is about
	GoodFor   int64        `json:"good_for"`       // microseconds that the decision holds
	Open      int64        `json:"open,omitzero"`  // microseconds that the gate waits at most
	Uses      int64        `json:"uses,omitzero"`  // how often an approval is good
	Once      bool         `json:"once,omitzero"`  // in entries without uses: it is good once, or else any number of times
	Calls     []string     `json:"calls,omitzero"` // the provider's ids of the calls that were gated
}

// kept is the body of proxy.kept: the provider's whole reply, of which the bytes from Withheld on
// wait for a person. Its subject is the gate, whose digest is that of the withheld bytes (PRX-27).
type kept struct {
	Status   int                 `json:"status"`
	Header   map[string][]string `json:"header"`
	Body     []byte              `json:"body"`
	Withheld int                 `json:"withheld"` // bytes that the client has, and rules allowed
}

// answerCall answers a call. In a loop, since one wait may lead to another:
//
//   - A call with an approval waits for its gate, whichever call opened it (PRX-39).
//   - A call whose twin is about to open a gate waits for that to happen, and joins it.
//   - Any other call is judged and sent. That may open a gate, for the request or for the reply,
//     which the next turn waits for (PRX-43).
//
// An approval that turns out to be spent starts the call over, unless something has been sent to
// the provider or to the client, which cannot be taken back. Gates are waited for here and
// nowhere deeper, so that the stack of a waiting call holds neither request nor reply.
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
		// Answered, or failed.
		case err != nil || next == nil && done:
			return err
		// The approval is spent. Judging anew would send the request, or begin the answer, twice.
		case !done && (x.sent || x.out.committed):
			return fault.New(fault.Conflict, "The approval was used meanwhile. Send the call again.")
		// The approval is spent, and a new gate may take its place, unless a use was given back since.
		case !done:
			if next = x.p.givenBack(x.r.Context(), a); next == nil {
				x.past = a.Gate
			}
		}
		a = next
	}
}

// announcedGate is a channel that is closed when the gate of the call is open, nil if no other call
// in this process is about to open one.
func (p *Proxy) announcedGate(fp string) chan struct{} {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.announced[fp]
}

// announceGate lets retries of the same call wait for the gate that this one is about to open, instead
// of calling the provider again. The caller must call opened when the gate is open or cannot be;
// it may be called more than once. On other nodes the transaction of openGate settles who is first.
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

// withholdReply opens one gate for all calls in a reply that need a person (PRX-26). If their rules
// leave nobody who may decide all of them, the reply is refused.
func (x *exchange) withholdReply(gates []gated, k *kept, opened func()) (*gate.Approval, error) {
	// Whatever happens, calls that wait for this gate to open must go on.
	defer opened()
	specs := make([]*policy.GateSpec, len(gates))
	for i, g := range gates {
		specs[i] = g.decision.Gate
	}
	spec, ok := layer.StrictestGate(specs...)
	if !ok {
		d := gates[0].decision
		d.Reason = "The rules " + gates[0].decision.Rule +
			" and others ask different people about this reply, and nobody may decide all of it. It is refused."
		// The record says block too, or a replay would count the decision as a gate.
		d.Record.Then, d.Record.Reason = policy.Block, d.Reason
		d.Action, d.Recorded = policy.Block, false
		return nil, x.refuseCall(d)
	}
	return x.openGate(gates, x.toolOpening(gates, k), spec, k)
}

// openGate opens the gate of a call and returns the approval that the call has to wait for. The
// decisions, the withheld reply and the gate are one transaction (PRX-27), which goes on if the
// client has gone. If the same call already has an approval that holds, from another connection or
// node, that one is returned and nothing is written. reply is nil if the gate is about the request.
func (x *exchange) openGate(gates []gated, o gate.Opening, spec policy.GateSpec, reply *kept) (*gate.Approval, error) {
	// A gate of the proxy always has an end: its reply takes room, and its client does not wait for ever.
	if spec.Expires <= 0 {
		spec.Expires = mostOpen
	}
	b := &held{
		Of: o.Of, Agent: x.who.ID, Gate: gate.NewID(), What: policy.OnPrompt, GoodFor: spec.GoodFor.Microseconds(),
		Open: spec.Expires.Microseconds(), Uses: int64(spec.Uses),
	}
	if b.GoodFor == 0 {
		b.GoodFor = replyWindow.Microseconds()
	}
	// The address is fixed now, the secret's generation when the gate is resolved (queueCallback).
	target, _ := x.p.Webhook(x.who.ID)
	o.Project, o.Agent, o.AgentName, o.Requester, o.Risk = x.project, x.who.ID, x.who.Name, x.who.Actor(), spec.Risk
	o.Origin = gate.Origin{Protocol: Name, Reference: x.reference(), Run: x.p.core.AskedBy(x.r.Context(), o.Of, x.who, x.run), Callback: target}
	o.Rules = gate.RulesOf(&spec)
	if !x.async {
		o.Uses = spec.Uses
	}
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
				if !g.decision.Recorded {
					tx.Append(x.decisionEntry(g.decision))
				}
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
	case x.out.given > 0: // of this reply, and the gate that stands is about another one
		return nil, fault.New(fault.Conflict, "The same call is held already. Send it again to wait for its gate.")
	}
	return stands, nil
}

// storedHeader is the header of a reply as it is kept: without cookies, which are secrets of one
// connection, and without what writeHeader sets anew.
func storedHeader(h http.Header) map[string][]string {
	out := h.Clone()
	dropHops(out)
	out.Del("Content-Length")
	out.Del("Set-Cookie")
	return out
}

// queueCallback queues the agent's webhook in the transaction that resolves the gate, so that no
// crash can come between the two.
func (p *Proxy) queueCallback(tx *ledger.Tx, g gate.Gate) error {
	_, generation := p.Webhook(g.AgentID())
	return deliver.QueueCallback(tx, g, generation)
}
