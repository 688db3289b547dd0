// Package ledger is the log book: one append-only, totally ordered, gapless list
// of entries, with the state that follows from them.
//
// # Writing
//
// Write is the only way to change state. Its function reads, decides and appends
// entries; it cannot change a table. Each entry's effect on tables is the apply
// function that a Projection has for the entry's kind, run in the same
// transaction. So state without an entry cannot be written, and any table can be
// built again by applying the entries to an empty one (Rebuild).
//
// Callers that are waiting share one transaction and one sync to disk. One
// goroutine owns the batch: it locks the head row, runs the functions in the order
// they came, and commits. A function that fails is dropped from the batch; if part
// of what it did has already been sent to the database, the batch is rolled back
// and its functions run again one by one. Functions must therefore have no effect
// but through Tx.
//
// # Reading
//
// A sequence number is given under the head lock, so numbers are gapless and in
// commit order on any number of nodes, and "everything after N" is a complete
// answer. Follow gives entries as they come; Consume does so from a durable named
// cursor that one node at a time holds.
//
// # Proving
//
// The stored record is the exact bytes that are hashed as a leaf of an RFC 6962
// tree. It holds the salted hash of the body, which stands beside it and can be
// erased. A goroutine on each node that has the signing key builds the tree from
// committed records, as tiles in the database, and signs a checkpoint. Before it
// signs it checks that the tree still has the root that was signed before; when it
// has not, the ledger takes no more writes.
//
// The package imports store, wire and fault, and knows no protocol.
package ledger
