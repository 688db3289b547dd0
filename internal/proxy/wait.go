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

// waitForGate waits for the gate of a call and answers with its outcome. done is false when the
// decision does not stand for this call any more, and it has to be asked anew. next is
// another gate to wait for.
func (x *exchange) waitForGate(a *gate.Approval) (next *gate.Approval, done bool, err error) {
	if !x.async || x.out.committed {
		if err := x.awaitGate(a.Gate); err != nil {
			return nil, true, err
		}
	}
	return x.settleGate(a)
}

// settleGate answers with where a gate stands.
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

// awaitGate holds the call until the gate is resolved, the call may be held no longer, or the
// server stops, and keeps the connection alive. For a while no status is sent, so that a
// quick no can be a real one.
func (x *exchange) awaitGate(gateID string) error {
	if resolved, err := x.p.core.Gates.Resolved(ended, gateID); err != nil || resolved {
		return err // and a status can still be whichever it has to be
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

// ended is a context that waits for nothing.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// signOfLife is what keeps the connection alive: JSON may begin with as many spaces as one likes.
func (x *exchange) signOfLife() []byte {
	if x.q.stream && x.form != nil {
		return x.form.Beat
	}
	return []byte(" ")
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

func (x *exchange) quietTime() time.Duration {
	return min(x.sdkTimeout()*2/5, x.p.Quiet)
}

// holdTime is how long the call is held. Some SDKs count the body into their timeout, so that
// signs of life are of no use.
func (x *exchange) holdTime() time.Duration {
	most := x.p.holdTime(x.set)
	if x.timeoutCoversBody() {
		most = min(most, x.sdkTimeout()*4/5)
	}
	return most
}

func (x *exchange) timeoutCoversBody() bool {
	lang, agent := x.r.Header.Get("X-Stainless-Lang"), x.r.Header.Get("User-Agent")
	if lang == "go" || strings.Contains(agent, "/Go ") {
		return !x.q.stream || x.r.Header.Get("X-Stainless-Timeout") != ""
	}
	major, _, _ := strings.Cut(x.r.Header.Get("X-Stainless-Package-Version"), ".")
	n, _ := strconv.Atoi(major)
	return strings.HasPrefix(agent, "OpenAI/JS") && n >= 7 && !x.q.stream
}
