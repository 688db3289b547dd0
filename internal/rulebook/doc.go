// Package rulebook keeps the policy in force, and remembers what it decided.
//
// The package policy turns rules and an input into a verdict, and knows nothing else.
// This one knows which policy is in force: every version is an entry in the ledger with
// the YAML as its body, the newest is in force on every node, and one that cannot be
// read blocks everything until another is applied. It also fills in what rules see
// and the caller does not know (who the agent is, what it did recently, what time it
// is), and returns a Record for the caller to append with what was decided.
//
// # Layers
//
// Beside the server's policy there are those of workspaces and of users (Layer), each with
// versions of its own; package policy/layer has the order in which they decide. Which are in
// force is read from the entries alone. A layer that cannot be read blocks everything for whom
// it is about, and nobody else.
//
// # What protocols do
//
// A protocol asks Decide, acts on the verdict, and appends the record in the same
// transaction as what follows from it: either as an entry of its own (Decision.Entry,
// of the kind signal.decided, action.decided and so on), or as the member "decision"
// of an entry's body, with a Reader that finds it again. In that transaction it calls
// Recheck first, and around all of it Settle.
//
// # What rules count
//
// recent counts what the ledger says an agent did. It follows the ledger, so what Decide
// sees is milliseconds behind, on every node alike. Recheck (exact.go) therefore counts again
// in the transaction that records the decision, where everything before it is known, and has
// it decided anew if that makes a difference: a limit of 60 lets through 60 of 100 calls at
// once. A window is divided into sixty parts and is
// counted in whole ones, so it reaches back up to a sixtieth further than it says: a limit
// is never missed because of rounding; windows of the calendar (this day) are exact. Only what the rules in force read is
// counted. A
// version that reads other counters is in force once the entries of the longest window
// have been read.
//
// # What is reserved
//
// What a model call takes is known when it is over. Reserve adds to the record of a decision that lets one go on what
// it may take at most (Reservation, held.go). That counts as cost and tokens of all whom the call belongs to until a Fact
// releases it, beside what the call really took, or for 15 minutes. An approved call, which goes on without a
// decision, is reserved with Book.ReserveFor. What only reserves stop is deferred (policy.Decide).
//
// # Invariants
//
// Nothing that an agent reports makes a counter smaller. A release counts once, and only by the agent that reserved.
// A decision that is recorded is what its version says with all that was recorded before
// it. A decision names the versions of all layers, and the rule that took it. A suspended agent is
// blocked whatever the rules say. Replaying a version over its own decisions changes
// nothing. Before Run has read a policy, and without one that can be read, everything is
// blocked.
package rulebook
