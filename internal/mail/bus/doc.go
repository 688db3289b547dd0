// Package bus is the local bus of AMP: the components of one agent, processes of one user
// on one machine, talk to one another over a Unix socket in JSON-RPC 2.0, a message a line.
// Nothing is kept: who is not there gets nothing. The agent's mail is reached through a
// gateway, which has its folder (mailbox) and signs for all of them.
//
// A connection has a reader, which also answers, and a writer with a short queue. A
// component that does not read loses what comes for it; nobody waits for it. Everything
// that is shared is behind one lock, and nothing is written under it.
//
// Whoever can open the socket is part of the agent: it lies in a folder that only its user
// can enter, and there is no other check. The bus knows nothing of providers.
package bus
