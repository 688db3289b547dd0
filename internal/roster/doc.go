// Package roster knows who there is: workspaces, the agents in them, the operators
// who answer for them, and the keys by which a caller is recognised.
//
// A key is shown once, when it is made; the ledger and the table hold its SHA-256.
// An agent is one identity whichever protocol it speaks, so any of its keys works
// wherever a bearer token is asked for. What a caller says about itself in a body
// counts for nothing: Authenticate decides who it is.
//
// All state follows from ledger entries (state.go); the service (service.go)
// checks and appends, and never writes a table.
package roster
