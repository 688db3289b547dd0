package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	"signalbox/internal/deliver"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

const (
	// replyWindow is how long a decision stands for the same call, where the rule does not say.
	replyWindow = time.Hour
	// mostOpen is how long a gate waits, where the rule does not say: nobody comes back for a
	// model's answer after that.
	mostOpen = 24 * time.Hour
	// resultsAwaited is how long the result of a call that was let go is waited for.
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

// released is the body of proxy.released: a reply, or a request, goes on. Its subject is the
// fingerprint.
type released struct {
	Gate   string `json:"gate"`
	Digest string `json:"digest"`
}

// askedAs is what an approval of a call is good for: a call of the agent with this fingerprint.
func askedAs(agentID, fingerprint string) gate.Asked {
	return gate.Asked{Agent: agentID, Key: Name, Digest: fingerprint}
}

// approval is what a call that was held waits for.
func (b *held) approval(fingerprint string, opened time.Time) *gate.Approval {
	a := &gate.Approval{Asked: askedAs(b.Agent, fingerprint), Gate: b.Gate, Window: micros(b.GoodFor), Uses: gate.Unlimited, Until: b.until(opened)}
	if b.Once {
		a.Uses = 1
	}
	return a
}

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

// until is when the call is known no more: its gate was decided, and the window is over.
func (b *held) until(opened time.Time) time.Time {
	open := micros(b.Open)
	if open == 0 {
		open = mostOpen
	}
	return opened.Add(open + micros(b.GoodFor))
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// forget drops from time to time what is of no use any more. The proxy is locked.
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

// takeUse takes a use of an approval in memory. Others may be looking at the one there is.
func (p *Proxy) takeUse(fp, gateID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := p.approvals[fp]; a != nil && a.Gate == gateID {
		p.approvals[fp] = a.Used()
	}
}

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

// trace ties together what belongs to the call.
func (x *exchange) trace() string {
	if x.run != "" {
		return "run:" + x.who.ID + ":" + x.run
	}
	return "call:" + x.fp
}

// maxRecorded is how much of a request stands in the record of a decision about it.
const maxRecorded = 64 << 10

// decided is a decision as an entry, without what is too large to be kept twice.
func (x *exchange) decided(d rulebook.Decision) ledger.Event {
	e := d.Record.Event
	if e.Point == policy.OnPrompt && e.Text == "" {
		e.Text = promptText(x.q.body)
	}
	if e.Point == policy.OnPrompt && len(x.q.body) > maxRecorded {
		e.Fill, e.Payload = nil, nil
		e.Text = strings.ToValidUTF8(e.Text[:min(len(e.Text), maxRecorded)], "")
	}
	e.Complete() // as long as the request is there
	return d.Entry(x.who, x.fp, x.trace())
}

// openGate opens the gate of a call: what was decided, what is kept, and the gate are one
// transaction. Another call with the same fingerprint that was faster keeps its gate.
func (x *exchange) openGate(what policy.Point, gates []gated, o gate.Opening, spec policy.GateSpec, reply *kept) (*gate.Approval, error) {
	if spec.Expires <= 0 {
		spec.Expires = mostOpen
	}
	b := &held{Agent: x.who.ID, Gate: gate.NewID(), What: what, GoodFor: spec.Window.Microseconds(), Open: spec.Expires.Microseconds(), Once: spec.SingleUse}
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
		if body, err = ledger.Encode(reply); err != nil {
			return nil, err
		}
	}
	var stands *gate.Approval
	err = x.p.core.Ledger.Write(context.WithoutCancel(x.r.Context()), func(tx *ledger.Tx) (err error) {
		stands, err = b.approval(x.fp, tx.Now()).Open(tx, x.past, func() {
			for _, g := range gates {
				tx.Append(x.decided(g.decision))
			}
			if reply != nil {
				tx.Append(ledger.Event{Workspace: x.who.Workspace, Kind: kindKept, Actor: "system", Subject: b.Gate, Trace: x.trace(), Body: body})
			}
			tx.Append(ledger.Event{Workspace: x.who.Workspace, Kind: kindHeld, Actor: x.who.Actor(), Subject: x.fp, Trace: x.trace(), Body: b})
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

// reference is how the gate's origin, and the webhook's run_id, name the call.
func (x *exchange) reference() string {
	if x.run != "" {
		return x.run
	}
	return "call-" + x.fp[:32]
}

// useApproval notes that what was approved goes on, and uses the approval.
func (x *exchange) useApproval(g *gate.Gate) error {
	return x.p.core.Ledger.Write(context.WithoutCancel(x.r.Context()), func(tx *ledger.Tx) error {
		return askedAs(x.who.ID, x.fp).Use(tx, g, func() {
			tx.Append(ledger.Event{Workspace: x.who.Workspace, Kind: kindReleased, Actor: x.who.Actor(), Subject: x.fp, Trace: x.trace(), Body: released{g.ID, g.ActionDigest}})
		})
	})
}

// keptReply reads back what was withheld, and checks that it is what was approved.
func (x *exchange) keptReply(g *gate.Gate) (*kept, error) {
	entries, err := x.p.core.Ledger.Entries(context.WithoutCancel(x.r.Context()), ledger.Query{Kinds: []string{kindKept}, Subject: g.ID, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 || entries[0].Body == nil {
		return nil, fault.New(fault.NotFound, "The reply that was approved is not kept any more. Change the request a little to ask anew.")
	}
	var k kept
	if err := entries[0].Decode(&k); err != nil {
		return nil, err
	}
	if k.Withheld < 0 || k.Withheld > len(k.Body) || digest(k.Body[k.Withheld:]) != g.ActionDigest {
		return nil, fault.New(fault.LedgerMismatch, "What was kept is not what was approved (gate %s).", g.ID)
	}
	return &k, nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// resolved queues the webhook in the transaction that resolves the gate.
func (p *Proxy) resolved(tx *ledger.Tx, g gate.Gate) error {
	_, generation := p.Webhook(g.AgentID())
	return deliver.QueueCallback(tx, g, generation)
}

const maxShown = 64 << 10 // bytes of a call

// toolOpening is what an operator is shown of calls.
func (x *exchange) toolOpening(gates []gated, withheld []byte) gate.Opening {
	o := gate.Opening{Digest: digest(withheld)}
	var titles []string
	for _, g := range gates {
		e := x.seen(&g.Call)
		title := g.Tool
		if g.Toolset != "" {
			title = g.Toolset + "/" + g.Tool
		}
		o.Shown.Facts = append(o.Shown.Facts, gate.Fact{Name: "call", Value: clean(title + " " + g.ID + ", by the rule " + g.decision.Rule)})
		o.Shown.Artifacts = append(o.Shown.Artifacts, artifact(title, g.Arguments))
		switch {
		case e.Command != "":
			title += ": " + e.Command
		case e.URL != "":
			title += ": " + e.URL
		case e.Path != "":
			title += ": " + e.Path
		}
		titles = append(titles, title)
	}
	first := gates[0].decision
	o.Shown.Title = gate.Title(clean(titles[0]))
	if len(gates) > 1 {
		o.Shown.Title = fmt.Sprintf("%d calls: %s", len(gates), o.Shown.Title)
	}
	o.Shown.ProposedAction = clean(strings.Join(titles, "\n"))
	o.Shown.Summary = "The model " + clean(x.q.model) + " wants this done. Approve or reject all of it."
	o.Shown.Rule, o.Shown.Reason = first.Rule, clean(first.Reason)
	return o
}

// promptOpening is what an operator is shown of a request.
func (x *exchange) promptOpening(d rulebook.Decision) gate.Opening {
	o := gate.Opening{Digest: digest(x.q.body)}
	o.Shown.Title = gate.Title(clean("Ask " + x.q.model + ": " + lastWords(x.q.body)))
	o.Shown.Summary = "A request is about to reach the provider " + x.provider + "."
	o.Shown.ProposedAction = "Send " + x.kind + " to " + clean(x.q.model)
	o.Shown.Facts = []gate.Fact{{Name: "model", Value: clean(x.q.model)}, {Name: "tools", Value: clean(strings.Join(x.q.tools, ", "))}, {Name: "bytes", Value: fmt.Sprint(len(x.q.body))}}
	o.Shown.Artifacts = []wire.Raw{artifact("request", x.q.body)}
	o.Shown.Rule, o.Shown.Reason = d.Rule, clean(d.Reason)
	return o
}

// lastWords is the end of what the request says.
func lastWords(body []byte) string {
	text := strings.TrimSpace(promptText(body))
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		text = text[i+1:]
	}
	return text
}

// artifact shows JSON, or what should be. The digest binds what is not shown, too.
func artifact(name string, text []byte) wire.Raw {
	content := wire.Raw(bytes.ReplaceAll(text, []byte(`\u0000`), []byte(`\ufffd`)))
	if len(content) > maxShown || !wire.Valid(content) || !form.IsObject(content) {
		content = wire.AppendText(nil, clean(strings.ToValidUTF8(string(text[:min(len(text), maxShown)]), "")))
	}
	out := append([]byte(`{"type":"json","name":`), wire.AppendText(nil, clean(name))...)
	return append(append(append(out, `,"content":`...), content...), '}')
}

// clean is text that a record can hold.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// storedHeader is the header of a reply that is kept: no cookies, nothing of a connection.
func storedHeader(h http.Header) map[string][]string {
	out := h.Clone()
	dropHops(out)
	out.Del("Content-Length")
	out.Del("Set-Cookie")
	return out
}
