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

// waitForGate waits for the gate of an approval and answers with its outcome. If done is false the
// approval is spent, and the call has to be judged anew. next is another one to wait for.
func (x *exchange) waitForGate(a *gate.Approval) (next *gate.Approval, done bool, err error) {
	if !x.async || x.out.committed {
		if err := x.awaitGate(a.Gate); err != nil {
			return nil, true, err
		}
	}
	return x.settleGate(a)
}

// settleGate answers with the outcome of a gate, or that it is pending.
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

// errGone says that the client has ended the call. Its gate stays.
var errGone = fault.New(fault.Cancelled, "The client has ended the call. Its gate stays.")

// awaitGate holds the call until the gate is resolved, the call cannot be held longer, or the server
// stops, and keeps the connection alive. At first no status is sent, so that a quick no can have
// the status of one.
func (x *exchange) awaitGate(gateID string) error {
	if resolved, err := x.p.core.Gates.Resolved(ended, gateID); err != nil || resolved {
		return err // before a status is sent
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

// ended is a context that is done.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// signOfLife is what is sent to keep the connection alive. JSON may begin with any number of
// spaces.
func (x *exchange) signOfLife() []byte {
	if x.q.stream && x.form != nil {
		return x.form.Beat
	}
	return []byte(" ")
}

// sdkTimeout is how long the client waits, as its SDK's headers say; 600 s without them.
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

// quietTime is how long no status is sent.
func (x *exchange) quietTime() time.Duration {
	return min(x.sdkTimeout()*2/5, x.p.Quiet)
}

// holdTime is how long the call is held.
func (x *exchange) holdTime() time.Duration {
	most := x.p.holdTime(x.set)
	if x.timeoutCoversBody() {
		most = min(most, x.sdkTimeout()*4/5)
	}
	return most
}

// timeoutCoversBody reports whether the client's timeout includes reading the body, so that signs of
// life do not keep the call open.
func (x *exchange) timeoutCoversBody() bool {
	lang, agent := x.r.Header.Get("X-Stainless-Lang"), x.r.Header.Get("User-Agent")
	if lang == "go" || strings.Contains(agent, "/Go ") {
		return !x.q.stream || x.r.Header.Get("X-Stainless-Timeout") != ""
	}
	major, _, _ := strings.Cut(x.r.Header.Get("X-Stainless-Package-Version"), ".")
	n, _ := strconv.Atoi(major)
	return strings.HasPrefix(agent, "OpenAI/JS") && n >= 7 && !x.q.stream
}
