// Package ledger is `signalbox ledger`: the log book as people read, export, verify, prove and rebuild it.
//
// `tail`, `export` and `prove` ask the server; `verify` works offline and needs the key alone; `rebuild` opens the
// database itself. It must not know what the entries of a protocol mean.
package ledger

import "signalbox/internal/cli/command"

// New is the group `ledger`.
func New(a *command.App) *command.Command {
	return command.Group("ledger", "The log book: tail, export, verify, prove, rebuild",
		newTail(a), newExport(a), newVerify(a), newProve(a), newRebuild(a))
}
