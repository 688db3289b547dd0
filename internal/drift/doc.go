// Package drift keeps the server's time when clocks do not: the machine's clock, the database's, and the time of the
// last entry are compared at the start and every two seconds with how long the machine has been running.
//
// # What counts as a jump
//
// A minute. Less is a correction, and is followed without a word; what clocks are off by in an hour and a
// thousandth of the time that passes are such corrections too. Sleep of the machine is time that has passed.
//
// # What is followed
//
// On PostgreSQL the database's clock is the one that all nodes have in common: a node whose own clock differs by a
// minute works by the database's. Else it is the machine's clock. A jump forward is followed, with an alarm. A jump
// back is followed at once if it takes back a jump forward that was seen. Any other jump back would make every
// deadline later: time goes on as if there had been none, until an operator closes the alarm or starts the server again.
//
// # What is healed
//
// Entries never have an earlier time than the one before (LED-5), so after a clock that was ahead they would all have
// the same time until it is reached again. The entry clock.healed says by how much they were ahead, and the time steps
// back there and nowhere else (LED-36). That is an alarm too: what was opened meanwhile has deadlines that are later
// by as much.
//
// The package knows clocks and the ledger, and must not know what is due when.
package drift
