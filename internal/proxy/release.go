package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"time"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/policy"
	"signalbox/internal/rulebook"
)

// released is the body of proxy.released: an approved request is about to be sent, or an approved reply to be given.
// Its subject is the fingerprint. It takes one use of the approval, unless it is the same use again.
type released struct {
	behalf.Of        // on whose behalf
	Gate      string `json:"gate"`
	Digest    string `json:"digest"`
	Again     bool   `json:"again,omitzero"` // an SDK has sent the call again that was answered just now
	Agent     string `json:"agent,omitzero"`
	Project   string `json:"project,omitzero"`
	Run       string `json:"run,omitzero"`
	// Reserve is what the request that is about to be sent may cost; nil for a reply.
	Reserve *rulebook.Reservation `json:"reserve,omitzero"`
}

// readReleased is the rulebook.Reader of proxy.released.
func readReleased(e *ledger.Entry) (r rulebook.Reading, err error) {
	b, err := ledger.Read[released](e)
	if err == nil && b.Reserve != nil {
		r.Facts = []rulebook.Fact{{Reserve: b.Reserve, Belongs: rulebook.Belongs{
			Agent: b.Agent, User: b.User, Tier: policy.API, Project: b.Project, Run: b.Run, Handoff: b.Handoff,
		}}}
	}
	return r, err
}

// returned is the body of proxy.returned: what was released has not reached the client, so its use is
// given back. Its subject is the gate.
type returned struct {
	behalf.Of        // on whose behalf
	Agent     string `json:"agent"` // its id
	Call      string `json:"call"`  // the fingerprint
}

// mostReturns is how often one approval gets a use back. SDKs send a call three times.
const mostReturns = 5

// releaseRequest sends the approved request to the provider. Its reply may need a gate of its own,
// which takes the place of this one under the same fingerprint (PRX-43). A client that goes before
// the reply begins, and an error after which SDKs send the call again, do not use the approval up.
func (x *exchange) releaseRequest(g *gate.Gate) (*gate.Approval, error) {
	e := policy.Event{Point: policy.OnPrompt, Model: x.q.model}
	x.estimate(&e, &x.q)
	reserve := x.p.core.Book.ReserveFor(&e)
	if err := x.useApproval(g, released{Reserve: reserve}); err != nil {
		return nil, err
	}
	x.takeReserve(reserve)
	x.past, x.using = g.ID, g
	next, err := x.forwardRequest()
	if next == nil && (err != nil || !x.out.committed) {
		x.returnUse()
	}
	x.using = nil
	return next, err
}

// isRetried reports whether SDKs send a call again by themselves after this status.
func isRetried(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return true
	}
	return status >= http.StatusInternalServerError
}

// releaseReply gives the client the approved reply, or the rest of it if the client has the
// beginning. The reply is read and checked before a use is taken, and the use is on disk before
// the first byte is written (PRX-41, PRX-42). again says that it takes no use.
func (x *exchange) releaseReply(g *gate.Gate, again bool) error {
	k, err := x.keptReply(g)
	if err != nil {
		return err
	}
	rest := k.Body
	if x.out.committed { // the stream that opened the gate
		if rest = k.Body[k.Withheld:]; x.out.given != k.Withheld {
			return fault.New(fault.Internal, "What was sent does not fit what was kept.")
		}
	}
	if err := x.useApproval(g, released{Again: again}); err != nil {
		return err
	}
	if !x.out.committed {
		x.writeHeader(k.Status, http.Header(k.Header), len(k.Body))
	}
	if x.out.write(rest, true) != nil {
		if x.using = g; !again {
			x.returnUse()
		}
		return nil
	}
	x.p.noteGiven(x.fp, given{g.ID, x.retryCount(), x.p.core.Now()}, again)
	return nil
}

// useApproval takes one use of the approval and records the release. It fails with gate.ErrSpent if
// another call has taken the last use, on whichever node. A client that has gone takes none.
func (x *exchange) useApproval(g *gate.Gate, b released) error {
	if x.r.Context().Err() != nil {
		return errGone
	}
	b.Of, b.Gate, b.Digest, b.Agent, b.Project, b.Run = g.Of, g.ID, g.ActionDigest, x.who.ID, x.project, clean(x.run)
	return x.p.core.Ledger.Write(context.WithoutCancel(x.r.Context()), func(tx *ledger.Tx) error {
		record := func() {
			tx.Append(ledger.Event{
				Workspace: x.who.Workspace, Kind: kindReleased, Actor: x.who.Actor(), Subject: x.fp,
				Trace: x.trace(), Body: b,
			})
		}
		if err := x.p.core.Handoffs.Stands(tx, x.who, x.named.Claim, x.named.User); err != nil || b.Again {
			if err == nil {
				record()
			}
			return err
		}
		return x.p.core.Gates.Use(tx, askedAs(x.who.ID, x.fp), g, record)
	})
}

// returnUse gives back the use that the call has taken, if it has, since it came to nothing. If that cannot be written, or
// has happened too often, the next call opens a new gate. Call it before the client hears of it and sends the call again.
func (x *exchange) returnUse() {
	g, ctx := x.using, context.WithoutCancel(x.r.Context())
	if x.using = nil; g == nil {
		return
	}
	before, err := x.p.core.Ledger.Entries(ctx, ledger.Query{
		Kinds: []string{kindReturned}, Subject: g.ID, Limit: mostReturns,
	})
	if err == nil && len(before) < mostReturns {
		err = x.p.appendNow(ctx, ledger.Event{
			Workspace: x.who.Workspace, Kind: kindReturned, Actor: "system", Subject: g.ID, Trace: x.trace(),
			Body: returned{x.of, x.who.ID, x.fp},
		})
	}
	if err != nil {
		x.p.core.Log.Error("cannot give the use of an approval back", "gate", g.ID, "error", err.Error())
	}
}

// given is a reply that was given to a client as a whole.
type given struct {
	gate  string
	retry int // how often the client had sent the call again before
	at    time.Time
}

// retryTime is how long after its answer an SDK may send a call again, because it has given up waiting just then.
const retryTime = time.Minute

// noteGiven remembers a reply that was given, in case its client asks for it again. Retries do not make
// the time longer in which there may be more.
func (p *Proxy) noteGiven(fp string, g given, again bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if again {
		g.at = p.given[fp].at
	}
	p.given[fp] = g
}

// retryCount is how often the SDK says that it has sent this call before.
func (x *exchange) retryCount() int {
	n, _ := strconv.Atoi(x.r.Header.Get("X-Stainless-Retry-Count"))
	return n
}

// isRetry reports whether this is the call that was given the reply of a gate just now, sent again by
// its SDK: the same use, and the same bytes (PRX-40).
func (x *exchange) isRetry(gateID string) bool {
	x.p.mu.RLock()
	defer x.p.mu.RUnlock()
	last := x.p.given[x.fp]
	return last.gate == gateID && x.retryCount() > last.retry && x.p.core.Now().Sub(last.at) < retryTime
}

// keptReply reads the withheld reply from the ledger and compares it with the gate's digest: what was
// approved is released, and nothing else (PRX-41).
func (x *exchange) keptReply(g *gate.Gate) (*kept, error) {
	entries, err := x.p.core.Ledger.Entries(context.WithoutCancel(x.r.Context()), ledger.Query{
		Kinds: []string{kindKept}, Subject: g.ID, Limit: 1,
	})
	if err != nil {
		return nil, err
	}
	if len(entries) == 0 || entries[0].Body == nil {
		return nil, fault.New(fault.NotFound,
			"The reply that was approved is not kept any more. Change the request a little to ask anew.")
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

// digest is the SHA-256, in hex, of exactly the bytes that an operator approves.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
