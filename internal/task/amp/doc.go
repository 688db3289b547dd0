// Package amp is AMP/1.0 tasks without a server: the documents, what is wrong with one, the
// state of a task, and the rules by which a document changes it.
//
// It owns the forms on the wire (wire.go, schemas), the codes (codes.go), the state (state.go)
// and the steps (step.go and what stands beside it), which are pure: what happens next is
// decided by Policy.Step from the task, the input and the world that it is given, and by
// nothing else. A server, a client, a replay of the ledger and the conformance vectors use the
// same. It must not know of storage, HTTP, keys, or any clock but the one in World.
package amp
