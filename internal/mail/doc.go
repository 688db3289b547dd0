// Package mail speaks the Agent Messaging Protocol v0.1.2 as a provider: agents register and
// send one another signed messages, which reach them by poll, WebSocket or webhook.
//
// It owns messages and their queues, and puts the protocol together from its parts: who there
// is (directory), other providers and hosts (federation), files (attachment), and what the
// protocol says without a server (amp). The parts do not import it, and do not know messages.
//
// # The protocol in a page
//
// POST /v1/route takes a message, flat or as an envelope beside a payload (amp.Draft). Its
// signature is looked for in every form that clients make (amp); the text is
// searched for attempts to take its reader over (injection); the policy decides at the
// control point message. Then it is stored (route.go): the entry message.routed holds it,
// payload byte for byte, and a row of the recipient's queue points there. Only then the sender
// hears 200. A message leaves the queue when the recipient acknowledges it, when its time
// is over, or when the recipient leaves, and in no other way.
//
// Whoever waits is woken by the ledger (hub.go), and looks at the queue: long polls
// (pending.go) and sockets (socket.go) on any node. Webhooks go through the outbox
// (webhook.go); a 2xx is an acknowledgement. What rules or the scan want a person to see
// is held outside of the queue, behind a gate (held.go): quarantine (quarantine.go) is the
// same inbox.
//
// Mail for other providers, and for other hosts of our own, waits in queues of theirs and
// goes out through the outbox too (federate.go); what they send is taken in import.go.
//
// Payloads of messages that have ended are erased after a while (sweep.go). What is known
// beside them is said once more, so that the tables can still be built without them.
//
// # Where we settle what its documents leave open
//
// Clients write any number of /api and /v1 before a path, or none (path.go). The
// envelope that a recipient gets has the spelling of the addresses that was signed. The
// payload is never wrapped; what a reader should know of it stands beside it, in
// local.security. To register again takes the current key, the owner's key or a proof with
// the private key: a public key proves nothing. A header that names a host proves nothing
// either.
//
// Who agents are is the roster's to know; a tenant is a workspace. The package imports the
// core and no other protocol.
package mail
