// Package form knows the three forms of model calls: Anthropic's messages, and OpenAI's chat
// completions and responses. It finds the tool calls in replies and streams, says where a
// stream can be cut and how one is ended early, and passes over what is only said.
//
// It owns the bytes and what they mean, and knows nothing of policies, gates and connections.
// Whatever bytes come, and wherever they are split, it does not panic; what it cannot read
// is an error.
package form
