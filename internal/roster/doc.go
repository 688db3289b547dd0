// Package roster keeps the identities: workspaces, the agents in them, the users on whose
// behalf agents act, the operators who answer for them, and the keys by which callers
// authenticate. It also keeps when an agent was last seen, and its rate limits.
//
// # Who is who
//
// A workspace is what the messaging protocol calls a tenant, under the same name: one
// wall, one concept. So an agent's address is name@workspace.provider, and is fixed
// when the agent is added.
//
// A key is shown once, when it is made; the ledger and the table hold its SHA-256.
// An agent is one identity whichever protocol it speaks, so any of its keys works
// wherever a bearer token is asked for. Authenticate decides who a caller is; what a
// request claims about its sender is never used. A public key does not authenticate a
// call: others use it to check what the agent has signed. Nor does an operator's contact:
// a channel that has authenticated a person itself (Slack, Telegram) looks up by it which
// operator that is.
//
// # State
//
// All state follows from ledger entries (state.go). The service (agents.go, keys.go,
// operators.go, users.go) checks and appends, and never writes a table. Two things
// are not state: presence, which is bookkeeping beside the ledger (package presence), and
// rate limits, which each node counts for itself in memory (package bucket), so that an
// agent that calls N nodes may do N times as much.
//
// # Invariants
//
// A key that was revoked is refused on this node from the moment its revocation is
// answered, and on other nodes when they have followed the ledger, within milliseconds. A
// name, an address and a public key belong to one agent at a time. There is always an admin
// of the whole server.
package roster
