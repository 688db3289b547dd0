// Package task speaks AMP/1.0, the protocol of the Agentic Network: a coordinator
// dispatches work, an executor does it, a reviewer judges it, and the admin, a person,
// answers what they cannot solve.
//
// # The protocol in a page
//
// Five messages (amp/wire.go) go between the roles: task_dispatch, task_result,
// review_request, review_verdict and escalation. Each but the last has to be
// acknowledged in time; an answer counts as an ack. Who has the ball has to write
// something every half hour. A document goes through layers, and the first that finds
// something wrong refuses it with a code, a pointer and what would have been right:
// JSON, version, schema (amp/schemas), what the document says about itself
// (amp/semantic.go), the role of the key, and the task as it stands.
//
// A task (amp/state.go) has subtasks, each in one of ten states, and holds: locked after
// three rejects in a row, suspended by an escalation, admin_hold while a verdict waits.
// Step (amp/input.go) is the only thing that changes a task, and is a pure function of the
// task, what came, and what is known of the messages that it refers to. Time is a
// parameter; deadlines are moments in the task, of which the earliest is a durable timer.
//
// # What is written
//
// Each input is one entry with the document as it came and the task as it stands
// afterwards; what follows from it (implicit acks, escalations of the server) are
// entries of their own in the same transaction, and so are gates and deliveries. Replay
// takes the entries through Step again and finds the same tasks. A refusal is an entry,
// too.
//
// Every escalation opens a gate, and so do a verdict that is held and a plan that waits.
// What is decided there is the admin's instruction; what is answered in another way, such
// as by a late ack, settles the gate.
//
// # Where we settle what its document leaves open
//
// A role is the label "role" of the agent whose key it is; an operator is the admin. The
// first agent of a role that writes holds the role in the task by a lease with a
// generation, until it is silent too long or the admin reassigns it. A person approves the
// plan of every task once, and again when its risk rises; a rule of the policy that allows
// a dispatch at the control point task approves its plan instead. With tasks.plan_approval
// off, plans wait only where a rule says gate. The ids of messages are unique in a
// workspace. The last approval of a task of high risk waits for
// the admin. Approving the gate of an escalation resumes the task and rejecting it
// terminates the task; "modified" may name another action.
//
// # Git
//
// Repositories below tasks.repo_roots are looked into (package git): whether they are there,
// which branch they protect, whether commits are on the branch and are what was said of
// them, whether a branch moves that nobody may change. Nothing in them is trusted, and
// git is run so that nothing of theirs is run.
//
// Package amp has the documents and the rules, and this one what happens to them on a server.
// It imports the core and no other protocol.
package task
