// Package ahp lets an agent put its steps under a harness (AHP 2.4): it tells of what it
// does, asks before it acts, and goes on with the decision it hears.
//
//	c, err := ahp.Dial(ctx, "unix:/var/lib/signalbox/ahp.sock")
//	…
//	if _, err := c.Handshake(ctx, "pre_action", "post_action"); err != nil {
//		return err
//	}
//	d, err := c.Decide(ctx, ahp.Event{Type: ahp.PreAction, Payload: map[string]any{
//		"tool_name": "bash", "arguments": map[string]any{"command": "make test"},
//	}})
//	if !d.Allowed() {
//		return fmt.Errorf("not done: %s", d.Reason) // err says whether anybody decided
//	}
//
// A client speaks over HTTP, a WebSocket, a Unix socket, or the standard input and output
// of a program that it starts ([Spawn]).
//
// # Fail closed
//
// [Client.Decide] always returns a decision. When there is an error, be it that nobody
// answers in time, that the answer cannot be read, or that the stream has ended, the
// decision is a refusal. A stream that ends is noticed at once, and by every call that
// waits.
//
// It imports the standard library and a WebSocket, and nothing else of Signalbox. A
// [Client] may be used by many goroutines at once.
package ahp
