// Package client lets an agent signal what it did, and ask before it acts (AMP v1.0).
// It imports nothing but the standard library and knows nothing of the server but
// its protocol.
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
//			return err // rejected, or nobody could be asked: in both cases it is not sent
//		}
//		return send(ctx, text)
//	})
//
// # Fail closed
//
// [Client.Gate] and [Run.Approve] return nil when the action was approved, and in no
// other case: not when the server is away, not when it answers something that cannot
// be understood, not when ctx ends. A *[Rejected] is a decision; any other error means
// that there is none. Do not act on either.
//
// # What is sent again
//
// A call that brings no answer is made again, with growing pauses, and with the same
// bytes: the server knows a run by its run_id, so a signal that had arrived counts once.
// Sending a signal is given up after a while ([WithPatience]); waiting for a person
// ends with ctx only, and survives that the server is restarted.
//
// # The rest of a run
//
// [Client.Heartbeat] says that a run is alive and hears whether an operator wants it to
// stop. [Client.Signal] takes a [Failure] of a run, the [Receipt] of an action that was
// approved, and an agent's [Registration].
//
// A [Client] may be used by many goroutines at once. It starts none of its own.
package client
