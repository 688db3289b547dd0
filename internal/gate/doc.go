// Package gate keeps the decisions that people owe. Whichever protocol a request came
// through, if the policy wants a person to decide, a gate is opened, and all gates
// are in one inbox.
//
// # Invariants
//
// A gate has exactly one outcome, approved or rejected, and keeps it. Votes, expiry
// and restarts may come in any order: the first write that resolves it wins, and a
// later one is told who decided. Approval takes a quorum of different operators. One
// rejection resolves the gate unless the rule asks for more. The requester may not
// approve. An operator's vote may be cast by a delegate until a date; both are
// recorded. A gate that nobody decides expires to what its rule says, reject unless it
// says otherwise.
//
// action_digest is the SHA-256 of exactly what the operator was shown, or of the bytes
// that are held. An approval is good for that and for nothing else.
//
// # How it works
//
// A gate is opened in the transaction of the protocol that asks for it, and what
// follows from a decision (OnResolved) is written in the transaction that decides. So
// there is no moment at which one is on disk without the other. Expiry, reminders and
// escalations are durable timers. Calls that wait for a decision are woken by following
// the ledger, on whichever node the decision was made.
//
// state.go holds the rules as pure functions. The package imports the core above it
// and knows no protocol: Origin is a word and a reference.
package gate
