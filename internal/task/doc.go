// Package task speaks AMP/1.0, the protocol of the Agentic Network: a coordinator
// dispatches work, an executor does it, a reviewer judges it, and the admin, a person,
// decides what they cannot solve. docs/protocols/tasks.md has the rules by number (R-…,
// TSK-…); comments cite them.
//
// # The protocol in a page
//
// Five messages (amp/wire.go) go between the roles: task_dispatch, task_result,
// review_request, review_verdict and escalation. Each but the last must be acknowledged
// in time; an answer counts as an ack. The role that has the turn must write something
// every half hour. A document goes through layers, and the first that finds a problem
// refuses it with a code, a pointer and what would have been right: JSON, version, schema
// (amp/schemas), the document against itself (amp/semantic.go), the role of the key, and
// the task as it stands.
//
// A task (amp/state.go) has subtasks, each in one of ten states, and holds: locked after
// three rejects in a row, suspended by an escalation, admin_hold while a verdict waits.
// Policy.Step (amp/input.go) is the only thing that changes a task. It is a pure function of
// the task, the input, and what is known of the messages that the input refers to. Time is
// a parameter; deadlines are moments in the task, and the earliest is a durable timer.
//
// # What is written
//
// Each input is one entry, with the document byte for byte and the task as it stands
// afterwards. What follows from it (implicit acks, the server's escalations) are entries of
// their own in the same transaction, and so are gates and deliveries. Replay runs the
// entries through Step again and must find the same tasks. A refusal is an entry, too.
//
// Every escalation opens a gate, and so do a verdict that is held and a plan that waits. A
// decision there becomes the admin's instruction. A dispatch whose plan waits is kept (plan.go), and
// goes out when it is approved. If something is answered in another way,
// such as by a late ack, its gate is settled.
//
// # What we settle
//
// A role is the label "role" of the agent whose key it is; an operator is the admin. The
// first agent of a role that writes holds the role in the task by a lease with a
// generation, until it misses a deadline or the admin reassigns the role. A person approves
// the content of a task's dispatch, which covers its rework; a rule of the policy that
// allows a dispatch at the control point task approves it instead. With
// tasks.plan_approval off, plans wait only where a rule says gate. The approval that would
// complete a task of high risk waits for the admin. Approving the gate of an escalation
// resumes the task and rejecting it terminates the task; "modified" may name another action.
//
// # Git
//
// Repositories below tasks.repo_roots are looked at (packages look and git), before each
// message is taken and by the watcher: whether they are still what was dispatched, whether
// commits are what was said of them, whether a branch moves that nobody may change. What was
// found is in the entry, and the rules draw the consequences (amp/commits.go). Nothing in a
// repository is trusted, and git is called so that nothing of theirs is run.
//
// # Invariants
//
//   - A document is recorded, or its refusal is, or nothing has happened.
//   - An answer goes out after the entry is on disk.
//   - All that a step leads to is in one transaction with its entry.
//   - What goes out because it was approved is, byte for byte, what the approval is of, from the
//     agent that sent it, and goes out once.
//   - Nothing decides by a timestamp or a role in a document.
//
// Package amp has the documents and the rules; this package has what happens to them on a
// server. It imports the core and no other protocol.
package task
