// Package backup is `signalbox backup`, `restore` and `migrate`: the ledger as it is copied, brought back and moved.
//
// The commands open the database themselves, and need no server; `backup` may run beside one. They must not know what is
// in a backup, or how it is verified: that is package backup's.
package backup
