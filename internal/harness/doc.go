// Package harness serves AHP 2.4, the Agent Harness Protocol: an agent reports every
// step it takes, asks before the steps that matter, and goes on with the decision it
// gets.
//
// docs/protocols/harness.md is the protocol as it is spoken here. Comments cite its
// rules by number, such as AHP-35, where the code does something that only the rule
// explains.
//
// # The protocol in a page
//
// Messages are JSON-RPC 2.0 (rpc.go). ahp/handshake opens a connection. ahp/event
// carries one event: a request if the event asks for a decision, a notification if not.
// ahp/batch carries many events that have the generic decision. ahp/query asks a
// question. There are 22 types of events (wire.go). matrix.go says for each whether it
// asks for a decision, whether it may be in a batch, at which control point the policy
// is asked, and which shapes (package shape) its payload and its decisions have.
//
// Harness.Handle is all of it. Four transports carry it: POST (http.go), WebSocket
// (websocket.go), lines on a Unix socket (socket.go), and `signalbox harness stdio`,
// which is a pipe to the server.
//
// # The life of a step
//
//	parseMessage, parseEvent   is it a message, and an event?      rpc.go, wire.go
//	checkEvent                 depth and payload                   decide.go
//	evaluate                   the policy decides                  decide.go
//	answerVerdict              the verdict as a decision of AHP    decide.go, state.go, context.go
//	recordStep                 the entry is on disk                step.go
//	resultReply                the answer goes out                 rpc.go
//
// A step is one entry of the ledger and no row of a table. If a rule wants a person, an
// approval is opened for the session and the digest of the payload (hold.go). The call
// is held for 80 % of the time that the client waits, and postponed if that is not
// enough. The same call asked again finds the same gate.
//
// Notifications are checked, queued in memory (queue.go) and written in batches
// (notification.go), so that no agent waits for the disk. Telemetry is bounded: its
// oldest is dropped, and the next entry of the session counts how many. run_lifecycle,
// task_list and verification are never dropped. A server that is killed loses what was
// queued in its last moments.
//
// # Invariants
//
//   - An answer that permits something is on disk before it goes out (AHP-33).
//   - Whatever fails, the answer is a refusal that the client can decode (AHP-35). The reference
//     client fails open on errors, so an error does not stop an agent.
//   - Nothing is decided by what an event says about its sender (AHP-8). The identity follows from
//     the key, or from the socket.
//   - A batch is checked as a whole before any of it is decided (AHP-29).
//
// # Concurrency
//
// Harness may be used by any number of goroutines. Each stream has one reader and up to
// 256 workers (stream.go). One goroutine, Run, writes notifications; the fields it owns
// say so. Locks: queue.mu, handshakes.mu and streams.mu are leaves, and none is held while
// another is taken or while the ledger is written.
//
// # Extensions
//
// Context and memory come from the workspace's knowledge (package knowledge) and from
// the session's own notifications (context.go); intents come from keywords (intent.go).
// A3S Code is recognised and hears what it acts on (compat.go). An external handler may
// answer a type of event (package external), after the policy has allowed it.
//
// The package imports the core and no other protocol.
package harness
