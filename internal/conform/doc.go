// Package conform runs conformance cases against a server that speaks one of our
// protocols. The cases are data (signal.yaml, mail.yaml, harness.json, and the vectors
// of tasks). The code here reads them, makes the calls, and reports which answers are
// not those that the protocol asks for.
//
// # Files
//
//	kit.go, case.go, check.go, message.go, operator.go   signals, AMP v1.0
//	mailkit.go, mailcase.go, mailcheck.go                mail, AMP v0.1.2
//	harness.go, harness_do.go, harness_line.go           AHP 2.4
//	task.go, taskengine.go, taskserver.go                tasks, AMP/1.0
//	call.go                                              HTTP, for all of them
//
// It knows the server only from outside, over HTTP, so that it can judge any
// implementation: it imports nothing of the package of signals, mail or the harness.
// The cases of AHP connect with client/ahp, and those of tasks share types with the
// rules that they are about. What a case needs beside an agent's key, such as an
// operator who decides or a rule in the policy, it declares; it is skipped where that
// cannot be had, and never failed.
//
// # What it leaves behind
//
// A kit with an admin's token puts rules in front of the policy in force. They match
// its own agent and its own runs, so nobody else is decided by them. When it ends it
// puts the policy back, byte for byte, and rejects the gates that it has opened and
// nobody has decided. Its signals, messages and tasks stay, as everything in a ledger
// does: signals in the deck conform and in those that the cases about project_id name.
// The report says which, and which gates it had to leave.
//
// A kit runs its cases one after another. Names of runs, agents and tasks hold a random
// part, so that the same server can be checked again, and by two kits at once.
package conform
