// Package run records the runs of agent CLIs: what each was asked, every event in
// order, what it used, and how it ended. docs/protocols/runs.md has the rules that
// comments cite, such as RUN-33.
//
// # A run in a page
//
// A run is opened (POST /runs). A supervisor watches its process and reports the events
// (POST /runs/{id}/events), numbered from 1 without gaps. Events that are recorded
// already are skipped, so a report can be repeated. Each event is an entry of the
// ledger. Readers get the events from any number on, and then as they come (GET
// /runs/{id}/events?after=N); reader and server may go away and come back.
//
// The supervisor is a process of its own: `signalbox run` in a terminal, or one that
// the server has started and that outlives it. It asks for orders (POST
// /runs/{id}/pulse), which is at once its sign of life, how it learns that the run has
// to stop, and how it holds its session: one run at a time for each engine and session,
// on all nodes.
//
// Budgets are per run and per day, in dollars and tokens. They are checked in the transaction that records what was
// used: by what the CLI says (usage.go), or by the calls of models that the proxy has carried for the run, if it is
// metered (meter.go). It is one or the other, so that nothing is counted twice.
//
// # Invariants
//
//   - Every run has exactly one completed event, and it is the last (RUN-1, RUN-34). If the supervisor goes
//     silent, the server appends it.
//   - A number is recorded once, whatever is sent again (RUN-33).
//   - What a run and a day have used never falls (RUN-30).
//   - The server starts a run only in a folder that the configuration names, and only with a budget
//     (RUN-39).
//
// run_pulse is not state: it says until when a supervisor counts as alive, and is
// written beside the ledger. Everything else follows from entries.
//
// # Packages below
//
// engine knows what CLIs write, process how they are run, record reports for a
// supervisor, bridge starts runs from Telegram, vector has conformance cases. This
// package imports the core, engine and no other protocol.
package run
