package proxy

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/wire"
)

// waitForGate waits for the gate of an approval and answers with its outcome. If done is false, the
// approval is spent and the call has to be judged anew. next is another approval to wait for: an
// approved request was sent, and its reply needs a person too. An async call does not wait.
func (x *exchange) waitForGate(a *gate.Approval) (next *gate.Approval, done bool, err error) {
	if !x.async || x.out.committed {
		if err := x.awaitGate(a.Gate); err != nil {
			return nil, true, err
		}
	}
	return x.settleGate(a)
}

// settleGate answers with the outcome of a gate, or that it is pending. What was approved, a request
// or a reply, is known from the digest: that of the request, or of the withheld bytes.
func (x *exchange) settleGate(a *gate.Approval) (next *gate.Approval, done bool, err error) {
	g, err := x.p.core.Gates.Get(x.r.Context(), a.Gate)
	if err != nil {
		return nil, true, err
	}
	switch {
	case g.Status == gate.Pending && x.async && !x.out.committed:
		x.answerAccepted(g.ID)
		return nil, true, nil
	case g.Status == gate.Pending:
		return nil, true, x.answerPending(g.ID)
	// Before the outcome: a rejection, too, holds for its window only.
	case a.Spent(*g.ResolvedAt, x.p.core.Now()):
		return nil, false, nil
	case g.Status != gate.Approved:
		return nil, true, x.answerRejected(g.ID, g.Outcome())
	case x.q.body != nil && g.ActionDigest == digest(x.q.body):
		next, err = x.releaseRequest(&g)
	default:
		err = x.releaseReply(&g)
	}
	if errors.Is(err, gate.ErrSpent) {
		return nil, false, nil
	}
	return next, true, err
}

// errGone says that the client has gone. Nobody reads it; the gate stays for the client's retry.
var errGone = fault.New(fault.Cancelled, "The client has ended the call. Its gate stays.")

// awaitGate holds the call until the gate is resolved, the call cannot be held longer, or the server
// stops, and keeps the connection alive. At first no status is sent, so that a quick rejection can
// still be a 403 (PRX-30). A gate that is already resolved is found before anything is sent.
func (x *exchange) awaitGate(gateID string) error {
	if resolved, err := x.p.core.Gates.Resolved(doneContext, gateID); err != nil || resolved {
		return err
	}
	waiting, end := wire.Waiting(x.r.Context(), x.holdTime())
	defer end()
	x.out.holdOpen(gateID)
	defer x.out.stopBeat()
	_, err := x.p.core.Gates.Resolved(waiting, gateID)
	if err == nil && x.r.Context().Err() != nil {
		return errGone
	}
	return err
}

// doneContext is a context that is done: waiting with it asks for the present state.
var doneContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// signOfLife is what keeps the connection alive (PRX-29): an event that SDKs skip or, before JSON,
// a space, of which any number may precede a value.
func (x *exchange) signOfLife() []byte {
	if x.q.stream && x.form != nil {
		return x.form.Beat
	}
	return []byte(" ")
}

// sdkTimeout is how long the client waits, as its SDK says in headers; without them 600 s, the
// default of the SDKs of both providers.
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

// quietTime is how long a held call gets no status (PRX-30). SDKs that count until the headers give
// up at their timeout, so it stays well below.
func (x *exchange) quietTime() time.Duration {
	return min(x.sdkTimeout()*2/5, x.p.Quiet)
}

// holdTime is how long the call is held (PRX-31, PRX-32).
func (x *exchange) holdTime() time.Duration {
	most := x.p.holdTime(x.set)
	if x.timeoutCoversBody() {
		most = min(most, x.sdkTimeout()*4/5)
	}
	return most
}

// timeoutCoversBody reports whether the client's timeout includes reading the body, so that signs of
// life do not help (PRX-32). Measured: Anthropic's SDK in Go, and OpenAI's in JavaScript since
// version 7, both without a stream; with one, Go's only if a timeout is set.
func (x *exchange) timeoutCoversBody() bool {
	lang, agent := x.r.Header.Get("X-Stainless-Lang"), x.r.Header.Get("User-Agent")
	if lang == "go" || strings.Contains(agent, "/Go ") {
		return !x.q.stream || x.r.Header.Get("X-Stainless-Timeout") != ""
	}
	major, _, _ := strings.Cut(x.r.Header.Get("X-Stainless-Package-Version"), ".")
	n, _ := strconv.Atoi(major)
	return strings.HasPrefix(agent, "OpenAI/JS") && n >= 7 && !x.q.stream
}
