package wire

import (
	"context"
	"time"

	"signalbox/internal/fault"
)

var stopping Carried[context.Context]

// WithStop adds a context that ends when the server begins to stop. It is not the parent: a
// call under way is not cancelled by a stop, only those that ask for it (Stop, UntilStop) end.
func WithStop(ctx, stop context.Context) context.Context { return stopping.With(ctx, stop) }

// Stop is closed when the server begins to stop; nil without WithStop.
func Stop(ctx context.Context) <-chan struct{} {
	if stop := stopping.Of(ctx); stop != nil {
		return stop.Done()
	}
	return nil
}

// Stopping reports whether the server has begun to stop.
func Stopping(ctx context.Context) bool {
	stop := stopping.Of(ctx)
	return stop != nil && stop.Err() != nil
}

// UntilStop is a context that also ends when the server begins to stop, with a cause that says
// so. It is for calls that take so long that a stop should not wait for them. The caller has
// to call end.
func UntilStop(ctx context.Context) (until context.Context, end func()) {
	until, cancel := context.WithCancelCause(ctx)
	stop := stopping.Of(ctx)
	if stop == nil {
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
