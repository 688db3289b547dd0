// Package notes has the signed notes of a log, as text: checkpoints, and the successions by which one key of the log
// takes over from another. docs/protocols/ledger.md has the rules (LED-20, LED-37).
//
// A Chain is the keys of a log in their order. It says which key a checkpoint has to be signed with: the one that the
// entries under it have put in force. A chain is believed by whoever knows any one of its keys, since the keys on both
// sides have signed each succession.
//
// The package knows no database, no file and no clock.
package notes
