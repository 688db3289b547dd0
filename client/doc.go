// Package client lets an agent signal what it did, and ask before it acts (AMP v1.0). It
// imports the standard library only, and knows the server by its protocol only, which
// docs/protocols/signals.md describes.
//
// # Report a run
//
// [Client.Run] measures a function and reports it: when it began and ended, what it
// used and cost, and whether it failed. Inside of it [Run.Approve] asks an operator:
//
//	c, err := client.New("https://signalbox.example.com", os.Getenv("SIGNALBOX_KEY"), client.WithAgent("resume-tailor"))
//	…
//	err = c.Run(ctx, client.RunOptions{Summary: "Rewrote a resume"}, func(ctx context.Context, run *client.Run) error {
//		text, in, out := rewrite(ctx)
//		run.AddUsage("claude-sonnet-4-6", in, out)
//		if err := run.Approve(ctx, "Send it to the applicant", client.Text(text)); err != nil {
//			return err // rejected, or nobody decided: in both cases it is not sent
//		}
//		return send(ctx, text)
//	})
//
// # Fail closed
//
// [Client.Gate] and [Run.Approve] return nil if the action was approved, and in no other case:
// not if the server is down, not if its answer cannot be understood, not if ctx ends. A
// *[Rejected] is a decision; any other error means that nobody has decided. Do not act on
// either.
//
// Answers are read strictly (package strict): one JSON object with nothing after it, no name
// twice, a status that goes with the HTTP status. An error page of a proxy, or a redirect, is
// never an approval.
//
// # Retries
//
// A call without an answer is retried with growing pauses and with the same bytes. The server
// knows a run by its run_id, so a signal that had arrived counts once. Retrying a signal is
// given up after a minute ([WithPatience]). Waiting for a person ends with ctx only, and
// survives restarts of the server.
//
// # The rest of a run
//
// [Client.Heartbeat] says that a run is alive, and returns whether an operator wants it to
// stop. [Client.Signal] takes a [Failure] of a run, the [Receipt] of an action that was
// approved, and an agent's [Registration].
//
// A [Client] may be used by many goroutines at once. It starts none of its own.
package client
