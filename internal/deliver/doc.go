// Package deliver is the outbox: outgoing calls that must arrive, such as webhooks. Everything
// that is sent has a Sender.
//
// A delivery is queued in the transaction of its cause (Queue), so it exists if and only if its
// cause does. It is tried until it succeeds, or is given up where operators see it. It is sent at
// least once; every try has the same id, by which receivers drop repetitions.
//
//	queued ─ pending ─┬─ succeeded → delivered
//	            ↑     ├─ failed    → pending, after a pause
//	            │     └─ given up  → dead
//	            └──── resent ────────┘
//
// # Order
//
// Deliveries with the same order key form a lane. The first of a lane is tried until it has an
// outcome; those behind it wait, and those of other lanes do not. The table delivery_lane holds
// the first of each lane, so that the cost of finding work depends on the number of targets, not
// of deliveries.
//
// # Nodes
//
// A runner owns the lanes that it has claimed (claim.go), and serves each with one goroutine
// (lane.go). Ownership is bookkeeping, not state: it is not in the ledger. A runner that owns
// lanes counts up a beat. If its beat stands still for the time of a lease, by the stopwatch of
// the runner that watches it, it is dead and its lanes are free. No step of a wall clock can
// take lanes away. A try begins only if it must end before its runner could be taken for dead. A
// runner that stops gives its lanes back at once.
//
// Outcomes of all lanes are recorded together (record.go). An outcome of a delivery that has
// ended in the meantime is dropped.
//
// # Fairness
//
// A runner has a fixed number of slots. Lanes get one in the order of when they were last served,
// and give it up after a quantum if others wait. Lanes whose target is failing get at most half of
// the slots, so that targets which hang leave room for those that answer.
//
// # Safety
//
// A target is checked when it is registered (CheckTarget), and its address again when it is
// dialled (guard.go): what a name resolves to may change in between. Secrets of receivers are
// derived from one key and stored nowhere. Answers of receivers are read up to a limit, and never
// followed to another address.
//
// # Boundaries
//
// The package knows no protocol, but for the callback of gates that all of them share
// (callback.go). It imports the ledger, the gates, and the roster for who may ask.
package deliver
