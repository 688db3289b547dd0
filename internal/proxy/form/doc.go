// Package form knows the three forms of model calls: Anthropic's messages, and OpenAI's chat
// completions and responses. It finds the tool calls in replies and streams, says where a stream
// can be cut and how one is ended early, and skips text that rules do not read.
//
// It owns the bytes and what they mean, and knows nothing of rules, gates and connections; of package policy
// it has how data is decoded for rules (prompt.go). One
// file per form (messages.go, chat.go, responses.go), one for the cutting of streams (sse.go), one
// for skipping JSON (light.go), two for what people and models say (words.go, prompt.go), and what they have in
// common (machine.go).
//
// # Invariants
//
//   - Whatever bytes arrive, and wherever they are split, nothing panics; what cannot be read is an
//     error. Fuzz tests hold this.
//   - A call is reported when its last byte has arrived and never before. From its first byte until
//     then Step.Open is true.
//   - A block or item that may be a call and is of an unknown kind is taken for one (PRX-17).
//   - Frames that end a stream early continue from what the client has got, and not from what the
//     provider has sent: see Machine.Sent.
package form
