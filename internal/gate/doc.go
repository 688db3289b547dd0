// Package gate keeps the decisions that people owe. Whatever protocol something came
// through, if the policy wants a person to decide, a gate is opened, and all gates
// stand in one inbox.
//
// A gate has exactly one outcome, approved or rejected, and keeps it: votes, expiry
// and restarts may come in any order, and the first write that resolves it wins; a
// later one sees who decided. Approval takes a quorum of different operators, one
// rejection resolves unless the rule asks for more, and who asked may not approve.
// An operator's vote may be cast by a delegate until a date; both are recorded. A
// gate that nobody decides expires to what its rule says, reject unless it says
// otherwise.
//
// action_digest is the SHA-256 of exactly what the operator was shown. An approval is
// good for that and for nothing else.
//
// state.go holds the rules as pure functions. The package imports the core above it
// and knows no protocol: origin is a word and a reference.
package gate
