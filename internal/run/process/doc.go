// Package process owns the process of a run: it starts the CLI, feeds it the prompt,
// reads what it writes, and sees to it that nothing of it is left when the run ends.
//
// Run returns when there was a completed event, the process and everything that it
// started is gone, and the lock of its session is released. It waits for nothing
// without a limit. It knows no server and no ledger: events go to a function.
package process
