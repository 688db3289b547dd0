// Package proxy is the model proxy of AMP v1.0, pattern 2. A client of a model provider changes its
// base URL and nothing else; its requests, and the tool calls in the replies, are judged by the
// policy on the way.
//
// docs/protocols/proxy.md has the rules of the protocol as we speak it, PRX-1 to PRX-58. Comments
// cite them where the code would look odd without.
//
// # The way of a call
//
// One exchange is one call. The file names follow it:
//
//   - exchange.go: find the endpoint (endpoint.go) and the agent (identity.go, vault.go)
//   - request.go, prompt.go: read the request, ask the policy at the control point prompt
//   - upstream.go: send it to the provider
//   - reply.go, stream.go: read the reply, whole or frame by frame (package form)
//   - judge.go: ask the policy at the control point tool_call about each call in it
//   - hold.go, shown.go: open a gate for the calls that need a person
//   - wait.go, output.go: hold the client's connection open until the decision
//   - approval.go, release.go: find the approval, and give the client what was approved
//   - answer.go: every answer that is ours, in the form of the provider
//   - record.go, batch.go (package meter): what was used, at once or later
//   - receipt.go, thread.go: what became of it, what was promised before
//
// Package proxy knows no storage but the ledger and the vault's table, and no other protocol.
//
// # What is passed, and what is judged
//
// Replies are passed on byte for byte, as they arrive. What a model wants done is in its reply: a
// tool call. Once a tool call starts, output is buffered until the call is complete and the
// policy has allowed it. If a person has to decide, the rest of the reply is read, one gate lists
// every call that needs one, and everything from the first such call on is withheld until the gate
// is decided. The bytes that are released are read from the ledger and compared with the digest
// that was approved. If there are rules for tool calls, a reply that may hold one and cannot be
// read ends in an error.
//
// Most of a request and of a reply is text of messages, which few rules read (state.go knows
// which). It is skipped by its quotes and brackets (form/light.go); the rest is read strictly: members as SDKs
// and providers commonly write them after a check of the whole, anything else by a decoder.
// A complete reply that has none of the words of a tool call is passed on before it is decoded for
// its usage. Calls are recorded after they are answered.
//
// What runs inside the provider, such as its own tools, MCP servers and batches, has run before
// there is a reply. It is judged on the request.
//
// A call is recognised by its fingerprint, so that an SDK which tries again finds the same gate,
// and after the decision the stored reply.
//
// # Invariants
//
//   - No byte of a tool call is written before the policy has allowed it or a gate that names it
//     was approved; the release is on disk first.
//   - A stream that was begun ends as its form says, or with an error in that form. A reply that
//     broke off is never passed on as if it were complete.
//   - A call that was passed on is in the ledger soon after; when the ledger cannot follow, calls
//     are refused.
//   - A key of ours never reaches a provider, and a provider's key never reaches the ledger or a log.
//   - A call whose reply is withheld keeps a connection and a goroutine, and neither its request nor
//     its reply in memory.
//
// # Locks
//
// Proxy.mu guards the maps of Proxy and is held for map operations only. output.mu orders what is
// written to one client and is held while it is written. Package meter has locks of its own.
// No code takes one of them while it holds another.
//
// # Where we depart from the document
//
// Clients that do not know a bare 202 do not notice it, so a call is held by default and the 202 is
// for clients that ask for it (Prefer: respond-async, or the agent's setting). Rules cannot modify
// what is proxied, since content is not changed: modify blocks.
package proxy
