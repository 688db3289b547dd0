// Package mail is a provider of the Agent Messaging Protocol v0.1.2: agents register and send
// one another signed messages, which reach them by poll, WebSocket or webhook.
//
// It owns messages and their queues. The other parts of the protocol are packages below it:
// registered agents (directory), other providers and hosts (federation), files (attachment),
// what senders are told (sent), and everything that needs no server (amp). They do not import mail; sent, quota and
// attachment read the table of messages, and none of them writes it.
//
// The rules of the protocol have numbers, MSG-1 to MSG-116, in docs/protocols/mail.md. Comments
// cite them where the code would look odd without them.
//
// # The life of a message
//
// POST /v1/route reads a message (amp.Draft), finds the recipient, verifies the signature
// (amp.Signed), scans the text (injection) and asks the policy at the control point message.
// Then it stores the message (route.go, send.go): the entry message.routed holds it, payload
// byte for byte, and a row of the recipient's queue points to that entry. Only then does the
// sender get its 200. Whatever is killed afterwards, the message is in the queue.
//
// A message leaves the queue when the recipient acknowledges it, when it expires, when another
// provider refuses it, or when the recipient leaves. Nothing else removes it.
//
// Nobody is handed a message from memory. The ledger wakes long polls (pending.go) and sockets
// (socket.go) on every node by the id of the agent (hub.go), and they read the queue. Webhooks
// go through the outbox (webhook.go); a 2xx is an acknowledgement. A message that the policy or
// the scan wants a person to see is stored outside the queue, behind a gate (quarantine.go);
// quarantine.go is the protocol's view of those gates.
//
// Mail for other providers and for other hosts of ours waits in a queue per target and goes out
// through the outbox (federate.go). import.go accepts what they send.
//
// Payloads are erased some time after a message ended (sweep.go). The entry message.erased
// repeats everything else, so that the tables can be rebuilt without the payloads.
//
// # States
//
//	            ┌─ held ──────── rejected
//	Route ──────┤   │ approved
//	            └─ queued ─ delivered (pushed to a socket)
//	                 └─────────┴── acknowledged, expired, failed, undeliverable
//
// Every arrow is an entry (entry.go) whose apply function changes the row of the message
// (projection.go). A message has exactly one row in mail_message, and a row in mail_queue while it is
// queued or delivered.
//
// # The two sides of a message
//
// Meta is what the server made of a message when it accepted it; Payload is what the sender wrote.
// Code that needs more than Meta reads the entry. Nothing reads a payload to decide about delivery.
//
// # Concurrency
//
// Mail has no lock of its own around messages: every change is a function that the ledger runs
// in its one write transaction, and may run twice. hub and queueSizes are caches of one node;
// losing them loses nothing but a count or a wake-up.
//
// # What fails, and how
//
// A message that was not committed was not sent: the sender gets an error, and may repeat the request
// with its idempotency key. A message that was committed is delivered or ends with an entry that says
// why. A webhook, provider or host that does not answer delays only its own queue. A policy that cannot
// be evaluated blocks.
//
// # Boundaries
//
// Agents are the roster's, and a tenant is a workspace. The package imports the core and no
// other protocol.
package mail
