// Package counter keeps the live counters of the dashboard, and the decks that they are
// grouped by: runs by status, calls of models, tokens, cost, what rules refused, gates by outcome and the time that
// people take to decide, per hour, deck, agent, protocol, model and rule. Every page, command and metric that shows one
// of these numbers has it from here, so that they agree.
//
// # How it counts
//
// Nothing is counted on the write path, so that counting delays no caller. One node
// at a time, under a lease, reads the entries after a cursor, a page at a time, adds them
// up in memory, and writes a few rows together with the cursor in one transaction. So each
// entry counts exactly once, whatever is killed, and two nodes that count at the same time
// do no harm: the second finds the cursor moved. The counters are behind the ledger by
// less than a tenth of a second.
//
// They are bookkeeping about the ledger, as cursors are. Reset empties them, and everything
// is counted again.
//
// # What is counted
//
// Gates and what rules refused are counted here, whichever protocol opened or asked. A protocol's Reader says what else
// its entries add. Hours and days are those of UTC, by the time of the entry: a gate that is opened on
// Monday and approved on Tuesday counts on both. Expired gates are those that nobody decided,
// whether they were approved or rejected by that. The time to decide is that of people;
// gates that a rule or a timer resolved have none. Sums saturate at the largest number that
// both databases hold.
//
// # Invariants
//
//   - The parts of a report are the whole, of each kind of parts, to the billionth of a dollar. What has too many names
//     to be told apart is counted under Other.
//   - counter_sum is what counter_hour adds up to.
//   - Counting again gives the same.
//   - No table grows faster than the ledger, and names that agents invent make none grow.
//
// # Decks
//
// A deck exists from the first entry that names it, and is unsorted until an operator
// gives it a title. The title is state, and in the ledger.
//
// The package imports the core above it and knows no protocol.
package counter
