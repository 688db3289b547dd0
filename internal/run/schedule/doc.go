// Package schedule starts runs at times that people have set: a text of cron in a time zone, and what to do with times
// that were missed. docs/protocols/runs.md has the rules (RUN-56, RUN-57).
//
// A schedule is an entry, and its next time a durable timer. When that is due, the timer's handler records which times
// are to start a run and when the next one is (schedule.due), whatever is killed and on however many nodes. A worker
// then opens the runs, one node at a time; that a time has its run is recorded in the transaction that opens it, so a
// time starts one run or none.
//
// A schedule runs as the operator who has set it, and no longer when they are gone or may not. It imports the core and
// package run.
package schedule
