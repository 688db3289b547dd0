package wire

import "context"

type stopKey struct{}

// WithStop puts a channel into the context that is closed when the server begins
// to stop. Streams end then; calls that are under way are finished.
func WithStop(ctx context.Context, stop <-chan struct{}) context.Context {
	return context.WithValue(ctx, stopKey{}, stop)
}

// Stop is the channel that WithStop put there, nil when there is none.
func Stop(ctx context.Context) <-chan struct{} {
	stop, _ := ctx.Value(stopKey{}).(<-chan struct{})
	return stop
}
