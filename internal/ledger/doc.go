// Package ledger is one append-only, totally ordered, gapless list of entries, with
// the tables that follow from them. docs/protocols/ledger.md has the format and its
// rules; comments cite them as LED-1, LED-2 and so on.
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
// they arrived, and commits. A function that fails is dropped from the batch; if part
// of what it did has already been sent to the database, the batch is rolled back
// and tried again in halves. A function may therefore run more than once, and must
// have no effect but through Tx.
//
// # Reading
//
// A sequence number is taken under the head lock, so numbers are gapless and in
// commit order on any number of nodes, and "everything after N" is a complete
// answer. Follow yields entries as they are committed; Consume does so from a durable
// named cursor that one node at a time holds. A wake-up only says that there may be
// new entries. A follower that misses one polls after a second.
//
// # Proving
//
// The stored record is the exact bytes that are hashed as a leaf of an RFC 6962
// tree. It holds the salted hash of the body, which stands beside it and can be
// erased. A goroutine on each node that has the signing key builds the tree from
// committed records, as tiles in the database, and signs a checkpoint. Before it
// signs it checks that the tree still has the root that was signed before. If it
// does not, the ledger refuses writes until it is opened on a database that matches.
//
// # Goroutines and locks
//
// Run owns five goroutines: the committer, the listener for other nodes, the one that
// wakes waiters, the one that signs, and retention. The committer ends first, when
// everything it accepted is answered; the others go on until then, so that the last
// entries are signed. Locks are leaves: no two of them are held at once, except that
// Checkpoint holds building while it talks to the database.
//
// The package imports store, wire and fault, and knows no protocol.
package ledger
