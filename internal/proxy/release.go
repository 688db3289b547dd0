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

// released is the body of proxy.released: an approved request is about to be sent, or an approved
// reply to be given. Its subject is the fingerprint. It takes one use of the approval.
type released struct {
	Gate   string `json:"gate"`
	Digest string `json:"digest"`
}

// releaseRequest sends the approved request to the provider. Its reply may need a gate of its own,
// which takes the place of this one under the same fingerprint (PRX-43).
func (x *exchange) releaseRequest(g *gate.Gate) (*gate.Approval, error) {
	if err := x.useApproval(g); err != nil {
		return nil, err
	}
	x.past = g.ID
	return x.forwardRequest()
}

// releaseReply gives the client the approved reply, or the rest of it if the client has the
// beginning. The reply is read and checked before a use is taken, and the use is on disk before
// the first byte is written (PRX-41, PRX-42).
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
		_ = x.out.write(k.Body[k.Withheld:], true) // if the client has gone, its retry gets it
		return nil
	}
	if !x.out.committed {
		x.writeHeader(k.Status, http.Header(k.Header), len(k.Body))
		_ = x.out.write(k.Body, true)
		return nil
	}
	// A header without an encoding is out, with spaces after it: send the reply decompressed.
	text, err := decompress(k.Header, k.Body) // the header that was sent names no encoding
	if err != nil || k.Status != http.StatusOK {
		return fault.New(fault.Internal, "What was kept cannot be given any more. Send the call again.")
	}
	_ = x.out.write(text, true)
	return nil
}

// useApproval takes one use of the approval and records the release. It fails with gate.ErrSpent if
// another call has taken the last use, on whichever node.
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
