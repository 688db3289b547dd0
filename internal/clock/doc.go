// Package clock keeps durable timers: a row that says what is due and when, written in the
// same transaction as what it belongs to.
//
// A package sets and clears timers in the apply functions of its entries (Set,
// Clear), and gives a Handler for each kind. When a timer is due, its handler runs
// inside ledger.Write, appends what follows, and the timer is gone in the same
// transaction. So a timer takes effect exactly once, whatever is killed and on however
// many nodes: the second to fire it finds it gone. One node at a time looks for due
// timers, under a lease; if it dies, another takes over within seconds.
//
// Times are those of the server's clock, never a client's. A clock that is set forward
// fires timers early, one that is set back fires them late; neither loses one.
//
// The package knows nothing of gates or tasks, only kinds and subjects.
package clock
