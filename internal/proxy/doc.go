// Package proxy is the model proxy of AMP v1.0: pattern 2. A client of a model provider
// changes its base URL and nothing else; what it asks for, and what the model wants it to
// do, meets the policy on the way.
//
// It owns the way of a call: who calls (http.go, identity.go), what is asked (request.go, at the
// control point prompt), the provider's reply (reply.go, stream.go), the tool calls in it
// (judge.go, at the control point tool_call), gates and what waits for them (hold.go,
// await.go), what was used (record.go), and the providers' keys (vault.go). It knows no
// storage but through the ledger, and no other protocol.
//
// # What is passed, and what is judged
//
// Replies are passed as they came, byte for byte, as they come. What a model wants done is
// in its reply: a tool call. From the first byte of one on nothing is passed until the call
// is whole and the policy has allowed it. If a person has to decide, the rest of the reply is
// read, one gate lists every call that needs one, and everything from the first such call on
// is withheld until it is decided. What is released are the bytes that came, read back from
// the ledger and compared with the digest that was approved. Three readers of streams
// (package form) know where calls begin and end; whatever may hold a call and cannot be read,
// while there are rules for tool calls, ends in an error.
//
// Most of a request and of a reply is what is said, which few rules look at. It is passed over
// by its quotes and brackets (form/light.go); what rules look at is decoded strictly. A reply
// that is whole and cannot hold a call, since it has none of the words of one, goes on before
// it is decoded for what it took. What is written down comes after the reply.
//
// What runs inside the provider, such as its own tools, MCP servers and batches, has run
// before there is a reply. It is judged on the request.
//
// A call is known again by its fingerprint, so that an SDK which tries again meets the same
// gate, and after the decision the stored reply.
//
// # Invariants
//
//   - No byte of a tool call is written before the policy has allowed it or a gate that names
//     it was approved; the release is on disk first.
//   - A stream that was begun ends as its form says, or with an error in that form. A reply
//     that broke off is never passed on as if it were whole.
//   - A call that was passed is in the ledger soon after; when the ledger cannot follow,
//     calls are refused.
//
// # Where we depart from the document
//
// A bare 202 is invisible to clients that are not made for it, so a call is held by default
// and the 202 is for who asks for it (Prefer: respond-async, or the agent's setting). Rules
// cannot modify what is proxied, since content is not changed: modify blocks.
package proxy
