// Package rulebook keeps the policy in force, and remembers what it decided.
//
// The package policy turns rules and an input into a verdict, and knows nothing else.
// This one knows which policy that is: every version is an entry in the ledger with
// the YAML as its body, the newest is in force on every node, and one that cannot be
// read blocks everything until another is applied. It also fills in what rules see
// and the caller does not know (who the agent is, what it did recently, what time it
// is), and gives the caller a Record to put into the ledger with what was decided.
//
// # What protocols do
//
// A protocol asks Decide, acts on the verdict, and appends the record in the same
// transaction as what follows from it: either as an entry of its own (Decision.Entry,
// of the kind signal.decided, action.decided and so on), or as the member "decision"
// of an entry's body, with a Reader that finds it again.
//
// # What rules count
//
// recent counts what the ledger says an agent did. It follows the ledger, so it is
// behind by as long as an entry takes to be followed, which is milliseconds. A window
// is divided into sixty parts and is counted in whole ones, so it reaches back up to a
// sixtieth further than it says. Only what the rules in force ask for is counted;
// when others are asked for, the entries of the longest window are read once, and the
// new version is in force when that is done.
//
// # Invariants
//
// A decision names the version and the rule that took it. A suspended agent is
// blocked whatever the rules say. Replaying a version over its own decisions changes
// nothing.
package rulebook
