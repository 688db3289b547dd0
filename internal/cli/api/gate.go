package api

import "signalbox/internal/gate"

// The verbs of a decision.
const (
	Approve = "approve"
	Reject  = "reject"
)

// GatePath is where the operators' API has a gate.
func GatePath(id string) string { return Path("/ops/gates/{}", id) }

// Decide votes at a gate; the verb is Approve or Reject.
func Decide(id, verb string, d gate.Decision) Request { return Post(GatePath(id)+"/"+verb, d) }
