package mail

import (
	"time"

	"signalbox/internal/mail/amp"
)

// Trust is how far a recipient may believe who a message is from.
type Trust string

// The levels of trust.
const (
	Verified  Trust = "verified"  // signed, by an agent of the recipient's tenant
	External  Trust = "external"  // signed, by somebody else's agent
	Untrusted Trust = "untrusted" // not signed
)

// trustOf classifies a message.
func trustOf(signed bool, sender, recipient amp.Address) Trust {
	switch {
	case !signed:
		return Untrusted
	case sender.Tenant == recipient.Tenant && sender.Provider == recipient.Provider:
		return Verified
	}
	return External
}

// The states of a message.
const (
	Queued       = "queued"
	Delivered    = "delivered"    // pushed; it stays in the queue until it is acknowledged
	Held         = "quarantined"  // until a person decides
	Acknowledged = "acknowledged" // the recipient has it
	Rejected     = "rejected"     // by a person
	Expired      = "expired"
	Failed       = "failed"        // another provider refuses it
	Undelivered  = "undeliverable" // the recipient is gone
)

// statuses lists them.
var statuses = []string{Queued, Delivered, Held, Acknowledged, Rejected, Expired, Failed, Undelivered}

// The ways in which a message reaches its recipient.
const (
	ByRelay      = "relay"
	ByWebSocket  = "websocket"
	ByWebhook    = "webhook"
	ByFederation = "federation" // to another provider
	ByMesh       = "mesh"       // to another host of our provider
)

// calledOut reports whether a message reached its recipient, or who takes it there, by a
// call of ours, whose answer is the acknowledgement.
func calledOut(via string) bool { return via == ByWebhook || via == ByFederation || via == ByMesh }

// TTL is how long a message waits in the queue at the most.
const TTL = 7 * 24 * time.Hour

// expiry is when a message leaves the queue: when its sender says, and no later than the
// queue keeps it.
func expiry(queued, wanted time.Time) time.Time {
	most := queued.Add(TTL)
	if wanted.IsZero() || wanted.After(most) {
		return most
	}
	return wanted
}

// Severity is how bad what was found in a message is.
type Severity int

// The severities: what is low is delivered, what is medium flagged, what is high held
// for a person, and what is critical refused.
const (
	Low Severity = iota
	Medium
	High
	Critical
)

// severityOf: one kind of trick may be a colleague's way to talk; two together are seldom
// an accident, and an attack that overrides, extracts and sends away is none.
func severityOf(categories []string) Severity { return min(Severity(len(categories)), Critical) }
