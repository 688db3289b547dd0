// Package harness speaks AHP 2.4: an agent reports every step it takes, asks before those that
// matter, and goes on with the decision that it gets.
//
// # The protocol in a page
//
// Messages are JSON-RPC 2.0 (rpc.go). ahp/handshake opens a connection; ahp/event carries one
// event, as a request when a decision is due and as a notification when not; ahp/batch carries
// many that have the generic decision; ahp/query asks a question. There are 22 types of events
// (wire.go): matrix.go says which of them ask for a decision, which may be in a batch, at which
// control point the policy is asked, and which shapes (payloads.go) payloads and decisions have.
// Harness.Handle is all of it. Four transports carry it: POST (http.go), WebSocket
// (websocket.go), lines on a Unix socket (socket.go), and `signalbox harness stdio`, which is a
// pipe to the server.
//
// # What happens with a step
//
// It is checked, the policy is asked (decide.go), the verdict is put into the words of the
// event's type (state.go), the entry is on disk (step.go), and then the answer goes out: one
// entry for each decision and no table beside it. If a rule wants a person, an approval is opened
// for the session and the digest of the payload (hold.go); the call is held for 80 % of the time
// that the client has, and put off if that is not enough. The same call finds the same gate.
//
// Notifications are checked, queued in memory (queue.go) and written in batches
// (notification.go), so that no agent waits for the disk. Telemetry is bounded and its oldest is
// dropped, with a count in the ledger; run_lifecycle, task_list and verification are never
// dropped. A server that is killed loses what was queued in its last moments.
//
// # Where we settle what its document leaves open
//
// An answer is a decision that can be decoded, even if the policy fails or is slow: the reference
// client fails open on errors. Numeric ids are echoed. A batch is checked as a whole before any
// of it is decided. A handshake is required on streams and not of POSTs, which the entry notes.
// Context and memory come from the workspace's knowledge (package knowledge) and from the
// session's own notifications (context.go); intents come from words (intent.go). A listener may
// speak the dialect of A3S Code (compat.go), and an external handler may answer a type of event
// (external.go), after the policy has allowed it.
//
// The package imports the core and no other protocol. It trusts nothing that an event says of its
// sender: who it is follows from the key, or from the socket.
package harness
