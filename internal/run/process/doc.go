// Package process owns the process of a run: it starts the CLI, gives it the prompt,
// reads what it writes, and makes sure that nothing of it is left when the run ends.
// The rules are in docs/protocols/runs.md (RUN-20 to RUN-27).
//
// Run returns when the completed event is out, the process and everything it started is
// gone, and the lock of its session is released. It waits for nothing without a limit.
// It knows no server and no ledger: events go to a function, and why a run has to stop
// comes in through its context.
//
// # Goroutines
//
// A run has four: one that started the process and waits for it, on an OS thread of its
// own; one that writes the prompt; one that reads standard output and calls the
// translator; one that reads standard error. The caller's goroutine watches. Events are
// emitted by the reader, and after its end by the caller's goroutine, so never by two
// at once. Run waits for both readers.
//
// What has to be cleaned up is found through /proc, so only on Linux can it be
// complete.
package process
