// Package handoff is work that one agent hands on to another: who, to whom, for which user, with what of its own
// power, until when.
//
// A handoff is opened by the agent that hands work on, or by the server where a protocol does it (a task that is
// dispatched, a run that is started, a subagent). Whoever gets it calls with its token beside its own key. The server
// computes the chain, the depth and what remains allowed: what the user, the agent and every hop allow. Nothing that a
// call says of these counts.
//
// # Invariants
//
//   - A handoff never has more than the one above it: scopes, tools, budget and end are within those of the parent
//     when it is opened, and every hop of the chain is asked again when it is used.
//   - It ends with its parent, with the agent that handed it on, and at once when it is ended.
//   - The token is worth nothing to another agent, nor in another session where it is bound to one. It shows that a call of
//     another agent is made in the process that was handed the work (Within), and gives that call nothing.
//   - What holds is read from entries that are proved; the table only finds them.
//   - The token is derived from the id and the server's key and stored nowhere.
//
// The words delegation.… of the ledger and /ops/delegations are those of operators' votes, and have nothing to do with
// this package. It must not know any protocol.
package handoff
