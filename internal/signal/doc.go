// Package signal speaks AMP v1.0, pattern 1: an agent reports what it did and what it
// proposes in one POST, and is answered approved, rejected or pending.
//
// docs/protocols/signals.md has the rules of the protocol as we speak it, SIG-1 to SIG-50.
// Comments cite them where the code would look odd without.
//
// # The way of a signal
//
// POST /amp/signal takes one JSON object (http.go). readFields and Signal (fields.go, wire.go)
// check it and report every wrong field at once. Receive (service.go) compares it with the
// key that sent it and asks the policy at the control point signal. recordSignal (record.go)
// writes the payload, the decision and, if a person has to decide, the gate in one
// transaction. The answer goes out after the commit and has three fields: status, gate_id
// and message. settle (state.go) is the truth table of when a gate opens: the agent declares
// it (gate_required) and a rule confirms it.
//
// The agent learns the resolution in any of five ways: Prefer: wait on the POST,
// GET /amp/gates/{id}?wait=…, server-sent events of that gate, the same POST again, or a
// webhook (hooks.go), which is queued in the transaction that resolves the gate.
//
// # Other message types
//
// registration (1.1), gate_request, heartbeat and failure (2.0) and action_receipt (3.0) have
// calls of their own. /amp/signal takes all but the heartbeat too, if type names them. A
// message without type is a completion, so that clients of version 1.0 notice nothing.
//
// # Invariants
//
//   - Nothing is answered approved unless a rule or a person said so, or no gate was asked for
//     and no rule objects.
//   - One completion or failure counts per agent and run_id, whatever is retried and on
//     whichever node. The primary key of the table signal guarantees it.
//   - The payload is stored byte for byte and never changed.
//   - cost_usd is compared with the price table and never a reason to reject.
//
// # What is in memory
//
// Prices, webhooks and the runs that were signalled lately are kept in memory by following
// the ledger (Run), so every node has the same a moment later. None of it decides what is
// stored: prices and webhooks are copied into the entry, and the table has the last word on
// which runs are new.
//
// The package imports the core and no other protocol. The proxy uses its prices and webhooks
// through functions that the server passes on.
package signal
