package proxy

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
)

// released is the body of proxy.released: an approved request or reply goes on. Its subject is
// the fingerprint.
type released struct {
	Gate   string `json:"gate"`
	Digest string `json:"digest"`
}

// releaseRequest sends the approved request to the provider. Its reply may need a gate of its
// own, which takes the place of this one.
func (x *exchange) releaseRequest(g *gate.Gate) (*gate.Approval, error) {
	if err := x.useApproval(g); err != nil {
		return nil, err
	}
	x.past = g.ID
	return x.forwardRequest()
}

// releaseReply gives the client the approved reply, or the rest of it, if the client has the
// beginning.
func (x *exchange) releaseReply(g *gate.Gate) error {
	k, err := x.keptReply(g)
	if err != nil {
		return err
	}
	if err := x.useApproval(g); err != nil {
		return err
	}
	if x.out.given > 0 { // the client has the beginning of this very stream
		if x.out.given != k.Withheld {
			return fault.New(fault.Internal, "What was sent does not fit what was kept.")
		}
		_ = x.out.write(k.Body[k.Withheld:], true)
		return nil
	}
	if !x.out.committed {
		x.writeHeader(k.Status, http.Header(k.Header), len(k.Body))
		_ = x.out.write(k.Body, true)
		return nil
	}
	text, err := plain(k.Header, k.Body) // the header that was sent names no encoding
	if err != nil || k.Status != http.StatusOK {
		return fault.New(fault.Internal, "What was kept cannot be given any more. Send the call again.")
	}
	_ = x.out.write(text, true)
	return nil
}

// useApproval takes a use of the approval, and records that what was approved goes on.
func (x *exchange) useApproval(g *gate.Gate) error {
	return x.p.core.Ledger.Write(context.WithoutCancel(x.r.Context()), func(tx *ledger.Tx) error {
		return askedAs(x.who.ID, x.fp).Use(tx, g, func() {
			tx.Append(ledger.Event{
				Workspace: x.who.Workspace, Kind: kindReleased, Actor: x.who.Actor(), Subject: x.fp,
				Trace: x.trace(), Body: released{g.ID, g.ActionDigest},
			})
		})
	})
}

// keptReply reads the withheld reply from the ledger, and checks that it is what was approved.
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

// digest is the SHA-256 of what an operator approves, in hex.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
