// Package ahp is a client of AHP 2.4, the Agent Harness Protocol. An agent reports what
// it does, asks before it acts, and goes on with the decision it gets.
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
// A client speaks over HTTP, a WebSocket, a Unix socket, or the standard input and
// output of a program that it starts ([Spawn]).
//
// # Fail closed
//
// [Client.Decide] always returns a decision. With an error, the decision is a refusal:
// if nobody answers in time, if the answer cannot be parsed strictly, or if the stream
// has ended. So code that looks at [Decision.Allowed] alone is safe, and the error is
// for the log. A stream that ends fails every call that waits, at once.
//
// An answer is parsed strictly: one JSON object, no name twice, nothing after it,
// exactly the decision words of the event's type. A lenient parser might read an
// approval where the harness wrote a refusal.
//
// # Use
//
// A [Client] may be used by many goroutines at once. It does not reconnect: after the
// end of a stream, dial again. The package imports the standard library and a WebSocket
// library, and nothing else of Signalbox, so that agents can vendor it. Comments cite
// the rules of docs/protocols/harness.md, such as AHP-33.
package ahp
