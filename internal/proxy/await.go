package proxy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/policy"
	"signalbox/internal/proxy/form"
	"signalbox/internal/rulebook"
	"signalbox/internal/wire"
)

// first begins a call: one that is known goes on from where it stands. What is waited for is
// waited for here, so that a call that is held holds nothing of its request and its reply.
func (x *exchange) first() error {
	a := x.p.findApproval(x.fp)
	for {
		var next *gate.Approval
		var err error
		done := true
		if a != nil {
			next, done, err = x.join(a)
		} else if landed := x.p.flight(x.fp); landed != nil {
			select {
			case <-landed:
				a = x.p.findApproval(x.fp)
				continue
			case <-x.r.Context().Done():
				return errGone
			}
		} else {
			next, err = x.ask()
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

// flight is closed when the call with the fingerprint has its gate, nil when none is about to.
func (p *Proxy) flight(fp string) chan struct{} {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.flights[fp]
}

// takeOff says that the call is about to have a gate, until landed.
func (x *exchange) takeOff() (landed func()) {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	if x.p.flights[x.fp] != nil {
		return func() {}
	}
	wait := make(chan struct{})
	x.p.flights[x.fp] = wait
	return func() {
		x.p.mu.Lock()
		defer x.p.mu.Unlock()
		if x.p.flights[x.fp] == wait {
			delete(x.p.flights, x.fp)
			close(wait)
		}
	}
}

// ask asks the policy about the request, and goes on. An approval is to be waited for.
func (x *exchange) ask() (*gate.Approval, error) {
	if x.kind == "" { // what was stored is only fetched
		if x.who.Suspended {
			return nil, fault.New(fault.AgentSuspended, "This agent is suspended. An operator can resume it.")
		}
		return x.forward()
	}
	d := x.prompt()
	x.note.Policy, x.note.Rule = d.Record.Policy, d.Rule
	switch d.Action {
	case policy.Allow:
		if len(d.Shadow) > 0 {
			x.p.recorder.append(x.decided(d))
		}
		return x.forward()
	case policy.Gate:
		return x.openGate(policy.OnPrompt, []gated{{decision: d}}, x.promptOpening(d), *d.Gate, nil)
	case policy.Modify:
		d.Reason = "The rule " + d.Rule + " would change the request, which the proxy does not do. " + d.Reason
	default:
	}
	return nil, x.refuse(d)
}

// prompt decides about the request. Of a batch every call is looked at, and what is worst for
// one holds for all.
func (x *exchange) prompt() rulebook.Decision {
	if x.kind != "batch" {
		return x.decide(&x.q)
	}
	var worst rulebook.Decision
	for i, params := range x.q.batch {
		one := request{form: form.Messages, kind: x.kind, provider: x.provider, body: params}
		if err := one.read(x.rules.said); err != nil {
			one.model = "unreadable"
		}
		x.q.model = one.model
		d := x.decide(&one)
		if i == 0 || severity[d.Action] > severity[worst.Action] {
			worst = d
		}
	}
	if len(x.q.batch) == 0 {
		return x.decide(&x.q)
	}
	return worst
}

var severity = map[policy.Action]int{policy.Allow: 0, policy.Gate: 1, policy.Defer: 2, policy.Modify: 3, policy.Block: 4}

func (x *exchange) decide(q *request) rulebook.Decision {
	known := true
	if q.thread.continues != "" {
		var tools []string
		if tools, known = x.p.recall(x.r.Context(), x.who.ID, q.thread.continues); known {
			q.tools = append(q.tools, tools...)
		}
		q.thread.unknown = !known
	}
	e := policy.Event{Point: policy.OnPrompt, Protocol: Name, Kind: q.kind, Provider: q.provider, Model: q.model, Project: x.project, Run: x.run}
	if x.rules.prompt {
		e = q.event(x.project, x.run)
	}
	if x.rules.text {
		e.Text = promptText(q.body)
	}
	d := x.p.core.Book.Decide(x.r.Context(), x.who, e)
	if d.Action == policy.Allow && !known && x.rules.continued != "" {
		ask(&d, x.rules.continued, "This continues a conversation that the provider keeps and Signalbox has not seen, so the rule "+x.rules.continued+" cannot be checked against what came before.")
	}
	return d
}

// refuse records a decision, and answers with it.
func (x *exchange) refuse(d rulebook.Decision) error {
	if err := x.write(d); err != nil {
		return err
	}
	if d.Action == policy.Defer && !x.out.committed {
		x.fail(failure{status: http.StatusTooManyRequests, kind: errorKind(http.StatusTooManyRequests), message: d.Reason, retry: d.RetrySeconds()})
		return nil
	}
	return x.reject("", d.Reason)
}

// join waits for the gate of a call and answers with its outcome. done is false when the
// decision does not stand for this call any more, and it has to be asked anew. next is
// another gate to wait for.
func (x *exchange) join(a *gate.Approval) (next *gate.Approval, done bool, err error) {
	if !x.async || x.out.committed {
		if err := x.await(a.Gate); err != nil {
			return nil, true, err
		}
	}
	return x.settle(a)
}

// settle answers with where a gate stands.
func (x *exchange) settle(a *gate.Approval) (next *gate.Approval, done bool, err error) {
	g, err := x.p.core.Gates.Get(x.r.Context(), a.Gate)
	if err != nil {
		return nil, true, err
	}
	switch {
	case g.Status == gate.Pending && x.async && !x.out.committed:
		x.accepted(g.ID)
		return nil, true, nil
	case g.Status == gate.Pending:
		return nil, true, x.pending(g.ID)
	case a.Spent(*g.ResolvedAt, x.p.core.Now()):
		return nil, false, nil
	case g.Status != gate.Approved:
		return nil, true, x.reject(g.ID, g.Outcome())
	case x.q.body != nil && g.ActionDigest == digest(x.q.body):
		next, err = x.releaseRequest(&g)
	default:
		err = x.release(&g)
	}
	if errors.Is(err, gate.ErrSpent) {
		return nil, false, nil
	}
	return next, true, err
}

// releaseRequest sends on the request that was approved. Its reply may need a gate of its own,
// which takes the place of this one.
func (x *exchange) releaseRequest(g *gate.Gate) (*gate.Approval, error) {
	if err := x.useApproval(g); err != nil {
		return nil, err
	}
	x.past = g.ID
	return x.forward()
}

// errGone says that the client has ended the call. Its gate stays.
var errGone = fault.New(fault.Cancelled, "The client has ended the call. Its gate stays.")

// await holds the call until the gate is resolved, the call may be held no longer, or the
// server stops, and keeps the connection alive. For a while no status is sent, so that a
// quick no can be a real one.
func (x *exchange) await(gateID string) error {
	if resolved, err := x.p.core.Gates.Resolved(ended, gateID); err != nil || resolved {
		return err // and a status can still be whichever it has to be
	}
	waiting, end := wire.Waiting(x.r.Context(), x.mostHeld())
	defer end()
	x.out.hold(gateID)
	defer x.out.still()
	_, err := x.p.core.Gates.Resolved(waiting, gateID)
	if err == nil && x.r.Context().Err() != nil {
		return errGone
	}
	return err
}

// ended is a context that waits for nothing.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// sign is what keeps the connection alive: JSON may begin with as many spaces as one likes.
func (x *exchange) sign() []byte {
	if x.q.stream && x.form != nil {
		return x.form.Beat
	}
	return []byte(" ")
}

// commit sends a status before there is a decision. The output is locked.
func (x *exchange) commit(gateID string) error {
	x.out.committed = true
	h := x.w.Header()
	h.Set("X-Amp-Gate-Id", gateID)
	h.Set("X-Amp-Status", "pending")
	if x.q.stream && x.form != nil {
		x.out.machine = x.form.Machine()
		h.Set("Content-Type", "text/event-stream")
		h.Set("Cache-Control", "no-cache")
	} else {
		h.Set("Content-Type", "application/json")
	}
	x.w.WriteHeader(http.StatusOK)
	return x.out.put(nil, true)
}

// sdkTimeout is how long the client waits, as its SDK says; 600 s unless it does.
func (x *exchange) sdkTimeout() time.Duration {
	least := 10 * time.Minute
	for i, name := range []string{"X-Stainless-Timeout", "X-Stainless-Read-Timeout"} {
		n, err := strconv.ParseFloat(x.r.Header.Get(name), 64)
		if err != nil || n <= 0 || n >= 1e6 {
			continue
		}
		if said := time.Duration(n * float64(time.Second)); i == 0 || said < least {
			least = said
		}
	}
	return least
}

func (x *exchange) quiet() time.Duration {
	return min(x.sdkTimeout()*2/5, x.p.Quiet)
}

// mostHeld is how long the call is held. Some SDKs count the body into their timeout, so that
// signs of life are of no use.
func (x *exchange) mostHeld() time.Duration {
	most := x.p.hold(x.set)
	if x.impatient() {
		most = min(most, x.sdkTimeout()*4/5)
	}
	return most
}

func (x *exchange) impatient() bool {
	lang, agent := x.r.Header.Get("X-Stainless-Lang"), x.r.Header.Get("User-Agent")
	if lang == "go" || strings.Contains(agent, "/Go ") {
		return !x.q.stream || x.r.Header.Get("X-Stainless-Timeout") != ""
	}
	major, _, _ := strings.Cut(x.r.Header.Get("X-Stainless-Package-Version"), ".")
	n, _ := strconv.Atoi(major)
	return strings.HasPrefix(agent, "OpenAI/JS") && n >= 7 && !x.q.stream
}

// accepted answers at once: 202 with the gate.
func (x *exchange) accepted(gateID string) {
	x.out.committed = true
	x.pendingHeader(gateID)
	h := x.w.Header()
	h.Set("Content-Type", "application/json")
	x.w.WriteHeader(http.StatusAccepted)
	_, _ = x.w.Write(form.JSON(form.Object{"status": gate.Pending, "gate_id": gateID, "message": gate.Awaiting}))
}

func (x *exchange) pendingHeader(gateID string) {
	h := x.w.Header()
	h.Set("X-Amp-Gate-Id", gateID)
	h.Set("X-Amp-Status", string(gate.Pending))
	h.Set("Location", x.p.core.BaseURL+"/amp/gates/"+gateID)
	h.Set("Retry-After", "30")
	h.Del("Content-Length")
	h.Del("Content-Encoding")
}

// pending answers a call that was held for as long as it may be.
func (x *exchange) pending(gateID string) error {
	text := gate.Awaiting + " (" + gateID + "). Send the same request again to wait for the decision."
	if !x.out.committed {
		x.pendingHeader(gateID)
	}
	return x.say(http.StatusAccepted, text, gateID)
}

// reject answers a call that was refused: with an error, or softly with a message.
func (x *exchange) reject(gateID, why string) error {
	hard := failure{status: http.StatusForbidden, kind: errorKind(http.StatusForbidden), message: why, gate: gateID}
	json := x.out.committed && x.out.machine == nil
	if !x.set.SoftReject && !json || x.form == nil {
		x.fail(hard)
		return nil
	}
	if !x.out.committed {
		h := x.w.Header()
		h.Del("Content-Length")
		h.Del("Content-Encoding")
		h.Set("X-Amp-Status", string(gate.Rejected))
		if gateID != "" {
			h.Set("X-Amp-Gate-Id", gateID)
		}
	}
	return x.say(http.StatusOK, why, gateID)
}

// say answers with a message of ours in the form of the provider's, or ends with it what was
// begun. A conversation that the provider keeps cannot go on from an id of its own that it
// knows otherwise, so a stream that has shown one ends with an error.
func (x *exchange) say(status int, text, gateID string) error {
	begun := x.out.committed
	if x.form == nil {
		x.fail(failure{status: http.StatusConflict, kind: errorKind(http.StatusBadRequest), message: text, gate: gateID, retry: 30})
		return nil
	}
	if begun && x.q.thread.kept && x.out.machine != nil && x.out.machine.Facts().ID != "" {
		x.fail(failure{kind: errorKind(http.StatusForbidden), message: text})
		return nil
	}
	var body []byte
	switch {
	case x.out.machine != nil:
		body = x.out.machine.Ending(text, x.q.model, gateID)
	case x.q.stream:
		body = x.form.Machine().Ending(text, x.q.model, gateID)
	default:
		body = x.form.Message(text, x.q.model, gateID)
	}
	if !begun {
		h := x.w.Header()
		if x.q.stream {
			h.Set("Content-Type", "text/event-stream")
			h.Set("Cache-Control", "no-cache")
		} else {
			h.Set("Content-Type", "application/json")
			h.Set("Content-Length", fmt.Sprint(len(body)))
		}
		x.out.committed = true
		x.w.WriteHeader(status)
	}
	_ = x.out.write(body, true)
	return nil
}

// release gives the reply that was approved, from where the client has come to.
func (x *exchange) release(g *gate.Gate) error {
	k, err := x.keptReply(g)
	if err != nil {
		return err
	}
	if err := x.useApproval(g); err != nil {
		return err
	}
	if x.out.given > 0 { // a stream that was begun with this very reply
		if x.out.given != k.Withheld {
			return fault.New(fault.Internal, "What was sent does not fit what was kept.")
		}
		_ = x.out.write(k.Body[k.Withheld:], true)
		return nil
	}
	if !x.out.committed {
		x.reply(k.Status, http.Header(k.Header), len(k.Body))
		_ = x.out.write(k.Body, true)
		return nil
	}
	text, err := plain(k.Header, k.Body) // the status that was sent says nothing of a coding
	if err != nil || k.Status != http.StatusOK {
		return fault.New(fault.Internal, "What was kept cannot be given any more. Send the call again.")
	}
	_ = x.out.write(text, true)
	return nil
}

func (x *exchange) write(d rulebook.Decision) error {
	return x.p.note(context.WithoutCancel(x.r.Context()), x.decided(d))
}
