// Package amp is AMP/1.0 tasks without a server: the documents, what is wrong with one, the
// state of a task, and the rules by which a document changes it.
//
// It owns the forms on the wire (wire.go, schemas), the codes (codes.go), the state (state.go)
// and the steps: step.go has what steps share, submit.go takes messages, verdict.go verdicts,
// answer.go acks, heartbeats and what the server finds, instruct.go the admin's instructions.
//
// Steps are pure. What happens next is decided by Policy.Step from the task, the input and the
// World that it is given, and by nothing else. A server, a client, the replay of a ledger and
// the conformance vectors use the same code, so they cannot disagree. A change to a step
// changes what old ledgers replay to; the replay tests find that.
//
// Comments cite rules as R-… and TSK-…, which are in docs/protocols/tasks.md.
//
// The package must not know of storage, HTTP, keys, or any clock but the one in World.
package amp
