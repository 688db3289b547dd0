package mail

import (
	"time"

	"signalbox/internal/mail/amp"
	"signalbox/internal/mail/sent"
)

// Trust is how far the recipient may believe the sender's address. The server sets it when it
// accepts the message, and it never changes. A client verifies for itself and may go lower.
type Trust string

// The levels of trust (MSG-46).
const (
	Verified  Trust = "verified"  // signed, by an agent of the recipient's tenant
	External  Trust = "external"  // signed, by an agent of another tenant or provider
	Untrusted Trust = "untrusted" // not signed
)

// trustOf classifies a message whose signature, if there is one, has been verified.
func trustOf(signed bool, sender, recipient amp.Address) Trust {
	switch {
	case !signed:
		return Untrusted
	case sender.Tenant == recipient.Tenant && sender.Provider == recipient.Provider:
		return Verified
	}
	return External
}

// The states of a message; see package sent.
const (
	Queued       = sent.Queued
	Delivered    = sent.Delivered
	Held         = sent.Held
	Acknowledged = sent.Acknowledged
	HeldAway     = sent.HeldAway
	Rejected     = sent.Rejected
	Expired      = sent.Expired
	Failed       = sent.Failed
)

// Answer is the answer to a sender.
type Answer = sent.Answer

// The methods of delivery, in answers and in entries.
const (
	ByRelay      = "relay"
	ByWebSocket  = "websocket"
	ByWebhook    = "webhook"
	ByFederation = "federation" // to another provider
	ByMesh       = "mesh"       // to another host of our provider
)

// calledOut reports whether a method is a call of ours, whose answer is the acknowledgement.
func calledOut(via string) bool { return via == ByWebhook || via == ByFederation || via == ByMesh }

// TTL is how long a message waits in the queue at most (MSG-55).
const TTL = 7 * 24 * time.Hour

// expiry is when a message leaves the queue: when its sender wants, or after TTL if that is
// earlier.
func expiry(queued, wanted time.Time) time.Time {
	most := queued.Add(TTL)
	if wanted.IsZero() || wanted.After(most) {
		return most
	}
	return wanted
}
