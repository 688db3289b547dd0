// Package roster knows who there is: workspaces, the agents in them, the owners who
// may register agents, the operators who answer for them, and the keys by which a
// caller is recognised. It also knows when an agent was last heard of, and how much
// it may ask for in a minute.
//
// A workspace is what the messaging protocol calls a tenant, under the same name: one
// wall, one concept. So an agent's address is name@workspace.provider, and is fixed
// when the agent is added.
//
// A key is shown once, when it is made; the ledger and the table hold its SHA-256.
// An agent is one identity whichever protocol it speaks, so any of its keys works
// wherever a bearer token is asked for. What a caller says about itself in a body
// counts for nothing: Authenticate decides who it is. A public key is another matter:
// it opens nothing, and others use it to check what the agent has signed. So is an
// operator's contact: by it a channel that has made sure who somebody is (Slack,
// Telegram) is told which operator that is.
//
// All state follows from ledger entries (state.go); the service (agents.go, keys.go,
// operators.go, owners.go) checks and appends, and never writes a table. Two things
// are no state: presence, which is bookkeeping beside the ledger (presence.go), and
// rate limits, which each node counts for itself in memory (limit.go), so that an
// agent that calls N nodes may do N times as much.
package roster
