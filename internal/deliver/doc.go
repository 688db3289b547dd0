// Package deliver is the outbox: calls to others that must arrive. Webhooks go out
// through it, and whatever else has a Sender.
//
// A delivery is queued in the transaction of what it tells about (Queue), and is
// tried until it succeeds or is given up where operators see it. It is sent at
// least once; every try has the same id, by which receivers drop repetitions.
//
// # Order
//
// Deliveries with the same order key form a lane. The first of a lane is tried
// until it has an outcome; those behind it wait, those of other lanes do not. The
// table delivery_lane holds the first of each lane, so that finding work costs by
// the number of targets and not by the number of deliveries.
//
// # Nodes
//
// A runner owns the lanes that it has claimed (claim.go), and serves each with one
// goroutine (lane.go). Ownership is bookkeeping, not state: it is not in the ledger.
// A runner that holds lanes counts up a beat; one whose beat stands still for the
// time of a lease, by the watcher's own stopwatch, is dead, and its lanes are free.
// So a step of the wall clock takes nobody's lanes away. A try begins only when it
// must end before the runner could be taken for dead. A runner that stops gives its lanes
// back at once.
//
// Outcomes of all lanes are recorded together (record.go). One for a delivery that
// has ended in the meantime is dropped.
//
// # Safety
//
// A target is checked when it is registered (CheckTarget) and its address again
// when it is dialled. Secrets of receivers are derived from one key and stored
// nowhere.
//
// The package knows no protocol. It imports the ledger and, for who may ask what,
// the roster.
package deliver
