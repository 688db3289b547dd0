// Package witness keeps a log from showing different people different histories (C2SP tlog-witness, tlog-cosignature).
//
// Asker has witnesses cosign our own checkpoints: each one that has seen more of the ledger, or another history, says
// so, and the ledger takes no writes then. Keeper is the other side: this server as a witness of other logs. It
// cosigns a checkpoint only if the log has grown by what it has cosigned before, which it keeps in the database first.
//
// Tables are bookkeeping about logs (witness_log, witness_checkpoint): an entry for each cosignature would have two
// servers that witness each other never come to rest. The package must not sign a checkpoint of our own.
package witness
