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
	if g.Status == gate.Approved && a.Spent(*g.ResolvedAt, x.p.core.Now()) {
		// A use may have been given back that memory does not know of yet.
		if stored, err := x.p.core.Gates.Find(x.r.Context(), a.Asked); err == nil && stored != nil && stored.Gate == a.Gate {
			a = stored
		}
	}
	switch {
	case g.Status == gate.Pending && x.async && !x.out.committed:
		x.answerAccepted(g.ID)
		return nil, true, nil
	case g.Status == gate.Pending:
		x.answerPending(g.ID, pauseOf(x.r.Context()))
		return nil, true, nil
	case g.Status == gate.Approved && x.isRetry(g.ID):
		return nil, true, x.releaseReply(&g, true)
	// Before the outcome: a rejection, too, holds for its window only.
	case a.Spent(*g.ResolvedAt, x.p.core.Now()):
		return nil, false, nil
	case g.Status != gate.Approved:
		if next, done, err := x.tellModel(&g); done {
			return next, true, err
		}
		return nil, true, x.answerRefused(&g)
	case x.q.body != nil && g.ActionDigest == digest(x.q.body):
		next, err = x.releaseRequest(&g)
	default:
		err = x.releaseReply(&g, false)
	}
	if errors.Is(err, gate.ErrSpent) {
		return nil, false, nil
	}
	return next, true, err
}

// errGone says that the client has gone. Nobody reads it; the gate stays for the client's retry.
var errGone = fault.New(fault.Cancelled, "The client has ended the call. Its gate stays.")

// pauseOf is how many seconds later a call that is still undecided should be sent again. A server that
// stops takes a moment to be there again.
func pauseOf(ctx context.Context) int {
	if wire.Stopping(ctx) {
		return 3
	}
	return 1
}

// awaitGate holds the call until the gate is resolved, the call cannot be held longer, or the server
// stops. A stream that has begun is kept alive. A call that was sent nothing gets no status before
// its end is known, so that a rejection is the same error however long somebody took (PRX-30).
func (x *exchange) awaitGate(gateID string) error {
	if resolved, err := x.p.core.Gates.Resolved(doneContext, gateID); err != nil || resolved {
		return err
	}
	waiting, end := wire.Waiting(x.r.Context(), x.holdTime())
	defer end()
	if x.out.committed {
		x.out.startBeat(x.form.Beat)
		defer x.out.stopBeat()
	}
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

// holdTime is how long the call is held from now on (PRX-31, PRX-32). Before its status is sent, an
// SDK waits for its own timeout, and some for less (Options.Attempt).
func (x *exchange) holdTime() time.Duration {
	most := x.p.holdTime(x.set)
	if !x.out.committed {
		return min(most, x.p.Attempt-time.Since(x.began), x.sdkTimeout()*4/5-time.Since(x.began))
	}
	if x.timeoutCoversBody() {
		return min(most, x.sdkTimeout()*4/5-time.Since(x.began))
	}
	return most
}

// timeoutCoversBody reports whether the client's timeout includes reading a stream, so that signs of
// life do not help (PRX-32). Measured: that of the SDKs in Go, if a timeout is set.
func (x *exchange) timeoutCoversBody() bool {
	return (x.r.Header.Get("X-Stainless-Lang") == "go" || strings.Contains(x.r.Header.Get("User-Agent"), "/Go ")) &&
		x.r.Header.Get("X-Stainless-Timeout") != ""
}
