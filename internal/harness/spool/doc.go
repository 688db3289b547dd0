// Package spool is the server's side of what clients do while they cannot ask. While it can be reached, the server
// gives a client the list of tools that rules with on_unreachable allow, signed and with an end, and notes the key of the
// client's spool. When it is back, the client sends its spool, and each step becomes an entry step.unsupervised.
//
// # The spool
//
// A spool is a key of Ed25519 and lines of JSON. Each line has its number, the SHA-256 of the line before, what was asked,
// and what the client answered, and is signed as a whole (line.go). docs/protocols/harness.md has the form; client/ahp
// writes it.
//
// # Files
//
//	line.go    texts with a signature: lines of a spool, and lists
//	list.go    which tools an agent may use while we are away
//	open.go    spools: registered at a handshake, for one agent each
//	take.go    steps: checked, recorded once, in the order of the file
//	sql.go     entries and tables
//	http.go    what operators see of spools
//
// # Invariants
//
//   - A line that was recorded is not recorded again, whoever sends it how often.
//   - A line that does not fit is never passed over in silence: the entry spool.broken has it, and an alarm is raised.
//   - What a client says it was allowed is compared with what the policy allowed.
//
// The package knows neither transports nor the form of events: the harness reads those for it.
package spool
