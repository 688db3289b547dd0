// Package harness speaks AHP 2.4: an agent tells of every step it takes, asks before
// those that matter, and goes on with the decision it hears.
//
// # The protocol in a page
//
// Messages are JSON-RPC 2.0 (frame.go). ahp/handshake opens a connection; ahp/event
// carries one event, as a request when a decision is due and as a notification when not;
// ahp/batch carries many that have the generic decision; ahp/query asks a question. There
// are 22 types of events (events.go has the matrix: who blocks, who may stand in a batch,
// at which control point the policy is asked, what a payload and a decision look like).
// Harness.Handle is all of it. Four transports carry it: POST and WebSocket at /ahp
// (http.go), lines on a Unix socket (socket.go), and `signalbox harness stdio`, which is
// a pipe to the server.
//
// # What happens with a step
//
// It is checked, the policy is asked, its verdict is put into the words of the event's
// kind (state.go), the entry is on disk, and then the answer goes out: one entry for each
// decision and no table beside it. Where a rule wants a person a gate is opened for the
// session and the digest of the payload (gates.go); the call is held for 80 % of the time
// that the client has, and put off if that is not enough. The same call finds the same
// gate; an approval is good once, or for the window that the rule names.
//
// What agents only tell is checked, queued in memory and written in batches (note.go), so
// that nobody waits for the disk. Telemetry has bounded room and its oldest is dropped,
// with a count in the ledger; run_lifecycle, task_list and verification never are. A
// server that is killed loses what was queued in its last moments.
//
// # Where we settle what its document leaves open
//
// An answer is a decision that can be decoded, also when the policy fails or is slow: the
// first client there is takes an error for a yes. Numeric ids are echoed, a batch is
// checked as a whole before anything of it is decided, a handshake is asked for on
// streams and not of POSTs, which is noted in the entry. Context and memory come from
// the workspace's knowledge (knowledge.go: an index of words in plain tables, ranked by
// BM25) and from what the session itself told; intents from words (context.go). A
// listener may take the dialect of A3S Code (compat.go), and a type of event may be
// answered by an endpoint elsewhere (handler.go), after the policy has allowed it.
//
// The package imports the core and no other protocol. It trusts nothing that an event
// says of its sender: who it is follows from the key, or from the socket.
package harness
