// Package gate keeps the decisions that people owe. Whichever protocol a request came
// through, if the policy wants a person to decide, a gate is opened, and all gates
// are in one inbox.
//
// # Invariants
//
// A gate has exactly one outcome, approved or rejected, and keeps it. Votes, expiry
// and restarts may come in any order: the first write that resolves it wins, and a
// later one is told who decided. Approval takes a quorum of different people. One
// rejection, which says why, resolves the gate unless the rule asks for more. The requester
// may not approve. An operator's vote may be cast by a delegate until a date; both are
// recorded, and the delegate has no second vote. A gate that nobody decides expires to what
// its rule says, reject unless it says otherwise.
//
// There are two digests. action_digest is that of what an agent asks to do: of the bytes that
// are held, or of what the protocol shows of them. An approval is good for that and for nothing
// else. digest (seen.go) is that of the gate as a person reads it, with the action digest in it. A
// vote names it, and does not count for a gate that shows something else. Those who approve
// together approve the same: a change that one vote carries is a part of what the next one sees.
//
// # How it works
//
// A gate is opened in the transaction of the protocol that asks for it, and what
// follows from a decision (OnResolved) is written in the transaction that decides. So
// there is no moment at which one is on disk without the other. Expiry, reminders and
// escalations are durable timers. Calls that wait for a decision are woken by following
// the ledger, on whichever node the decision was made.
//
// state.go and seen.go hold the rules as pure functions. The package imports the core above it
// and knows no protocol: Origin is a word and a reference.
package gate
