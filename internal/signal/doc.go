// Package signal speaks AMP v1.0, pattern 1: an agent reports what it did and what it
// proposes, with one POST, and hears approved, rejected or pending.
//
// # The protocol in a page
//
// POST /amp/signal takes one JSON object (wire.go). It is recorded as it came, the
// policy is asked at the control point signal, and if a person is to decide a gate is
// opened, all in one transaction. The answer has three fields: status, gate_id and
// message. A gate fires when the agent declares it (gate_required) and the operator's
// rule confirms it (state.go has the whole truth table).
//
// The agent hears the resolution by whichever way suits it: Prefer: wait on the POST,
// GET /amp/gates/{id}?wait=…, server-sent events of that gate, the same POST again, or
// a webhook.
//
// # Where we settle what its document leaves open
//
// The same run_id again with the same content is a poll, and with other content is
// refused. Unknown fields are kept and warned of. resolved_by on the wire is the word
// "operator" or "rule"; who it was is in the ledger, and in the header AMP-Resolved-By for
// an agent that asks with Prefer: resolved-by. A gate does not expire
// unless a rule says so. cost_usd is compared with the price table and never a reason
// to refuse.
//
// # Message types of its roadmap
//
// registration (1.1), gate_request, heartbeat and failure (2.0), action_receipt (3.0)
// have calls of their own, and are understood by /amp/signal when type names them.
// A signal without type is a completion.
//
// The package imports the core and no other protocol.
package signal
