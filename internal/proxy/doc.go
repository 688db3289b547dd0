// Package proxy is the model proxy of AMP v1.0: pattern 2. A client of a model provider changes
// its base URL and nothing else; what it asks for, and what the model wants it to do, is judged by
// the policy on the way.
//
// It owns the way of a call: who calls (exchange.go, identity.go), the request (request.go,
// prompt.go, at the control point prompt), the provider's reply (upstream.go, reply.go,
// stream.go), the tool calls in it (judge.go, at the control point tool_call), what is held
// (hold.go), waited for (wait.go) and released (release.go), what was used (record.go), and the
// providers' keys (vault.go). It knows no storage but through the ledger, and no other protocol.
//
// # What is passed, and what is judged
//
// Replies are passed on byte for byte, as they come. What a model wants done is in its reply: a
// tool call. Once a tool call starts, output is buffered until the call is complete and the
// policy has allowed it. If a person has to decide, the rest of the reply is read, one gate lists
// every call that needs one, and everything from the first such call on is withheld until the gate
// is decided. What is released are the bytes that came, read from the ledger and compared with the
// digest that was approved. Three readers of streams (package form) know where calls begin and
// end. If there are rules for tool calls, a reply that may hold one and cannot be read ends in an
// error.
//
// Most of a request and of a reply is text of messages, which few rules read (state.go knows
// which). It is skipped by its quotes and brackets (form/light.go); the rest is decoded strictly.
// A complete reply that has none of the words of a tool call is passed on before it is decoded for
// its usage. Calls are recorded after they are answered.
//
// What runs inside the provider, such as its own tools, MCP servers and batches, has run before
// there is a reply. It is judged on the request.
//
// A call is recognised by its fingerprint (approval.go), so that an SDK which tries again finds the
// same gate, and after the decision the stored reply.
//
// # Invariants
//
//   - No byte of a tool call is written before the policy has allowed it or a gate that names it
//     was approved; the release is on disk first.
//   - A stream that was begun ends as its form says, or with an error in that form. A reply that
//     broke off is never passed on as if it were complete.
//   - A call that was passed on is in the ledger soon after; when the ledger cannot follow, calls
//     are refused.
//
// # Where we depart from the document
//
// Clients that do not know a bare 202 do not notice it, so a call is held by default and the 202 is
// for clients that ask for it (Prefer: respond-async, or the agent's setting). Rules cannot modify
// what is proxied, since content is not changed: modify blocks.
package proxy
