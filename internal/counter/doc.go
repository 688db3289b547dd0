// Package counter keeps the live counters of the dashboard, and the decks that they are
// sorted into: runs by status, tokens, cost, gates by outcome and the time that people
// take to decide, per deck, agent and day.
//
// # How it counts
//
// Nothing is counted where it happens, so that it costs those who wait nothing. One node
// at a time, under a lease, reads the entries after a cursor, a page at a time, adds them
// up in memory, and writes a few rows together with the cursor in one transaction. So each
// entry counts exactly once, whatever is killed, and two nodes that count at the same time
// do no harm: the second finds the cursor moved. The counters are behind the ledger by
// less than a tenth of a second.
//
// They are bookkeeping about the ledger and stand beside it, as cursors do. Reset empties
// them, and they are counted again.
//
// # What is counted
//
// Gates are counted here, whichever protocol opened them. What else there is in the
// entries of a protocol its Reader says. A day is one of UTC, and that of the entry: a
// gate that is opened on Monday and approved on Tuesday is in both. Expired is what
// nobody decided, whatever became of it then. The time to decide is that of people;
// what a rule or a timer resolved has none. Sums stop at the largest number that there
// is.
//
// # Decks
//
// A deck is there from the first thing on that names it, and is unsorted until an operator
// has given it a title, which is state, and in the ledger.
//
// The package imports the core above it and knows no protocol.
package counter
