// Package conform runs conformance cases against a server that speaks one of our
// protocols. The cases are data (signal.yaml, mail.yaml); what stands here reads them, makes the
// calls, and says which answers are not those that the protocol asks for.
//
// It knows the server from outside only, by HTTP, so that it can judge any
// implementation: it imports nothing of a protocol's package. What a case needs beside
// an agent's key (an operator who decides, a rule in the policy) it declares, and is
// skipped where that cannot be had.
//
// A kit that has an admin's token puts rules in front of the policy in force. They are
// about its own agent and its own runs, so that nobody else is decided by them. When it
// ends it puts the policy back, byte for byte, and rejects the gates that it has opened
// and nobody has decided. Its signals stay, in the deck conform and in those that the
// cases about project_id name; the report says which, and which gates it had to leave.
package conform
