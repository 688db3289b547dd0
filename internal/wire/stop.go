package wire

import (
	"context"
	"time"

	"signalbox/internal/fault"
)

type stopKey struct{}

// WithStop puts a context into the context that ends when the server begins to stop.
// Streams end then; calls that are under way are finished.
func WithStop(ctx, stop context.Context) context.Context {
	return context.WithValue(ctx, stopKey{}, stop)
}

// Stop is closed when the server begins to stop, nil when nobody said WithStop.
func Stop(ctx context.Context) <-chan struct{} {
	if stop, ok := ctx.Value(stopKey{}).(context.Context); ok {
		return stop.Done()
	}
	return nil
}

// UntilStop is a context that ends when the server begins to stop, too; its cause says
// so. It is for calls that take so long that a stop should not wait for them.
func UntilStop(ctx context.Context) (until context.Context, end func()) {
	until, cancel := context.WithCancelCause(ctx)
	stop, ok := ctx.Value(stopKey{}).(context.Context)
	if !ok {
		return until, func() { cancel(nil) }
	}
	ending := func() { cancel(fault.New(fault.Stopping, "The server is stopping. Try again when it has started.")) }
	if stop.Err() != nil {
		ending() // at once, which AfterFunc does not promise
	}
	detach := context.AfterFunc(stop, ending)
	return until, func() { detach(); cancel(nil) }
}

// Waiting is UntilStop for a call that waits a while for something to happen.
func Waiting(ctx context.Context, most time.Duration) (waiting context.Context, end func()) {
	until, over := UntilStop(ctx)
	waiting, cancel := context.WithTimeout(until, most)
	return waiting, func() { cancel(); over() }
}
