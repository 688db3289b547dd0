// Package alarm tells people of what nobody should have done: an agent that tried to decide as an
// operator, hooks that were taken out, a table that does not say what the ledger says.
//
// An alarm stands on every page of the dashboard, in `signalbox status` and in the channels of
// notifications until an operator closes it. While it is open, the same is not raised again: an
// agent that tries a thousand times makes one alarm. What it did each time is in the ledger under
// the entries of whoever refused it.
//
// The package owns alarms and nothing else. It must not know what any of them is about.
package alarm
