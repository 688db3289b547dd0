package wire

import (
	"context"
	"sync/atomic"
)

// Caller is who makes a call, for what is written about it when it has been answered. It decides nothing.
type Caller struct{ ID, Name, Workspace string }

var callers Carried[*atomic.Pointer[Caller]]

// WithCaller is a context in which NoteCaller notes who calls. found is nil inside until somebody does.
func WithCaller(ctx context.Context) (_ context.Context, found *atomic.Pointer[Caller]) {
	found = &atomic.Pointer[Caller]{}
	return callers.With(ctx, found), found
}

// NoteCaller notes who makes the call, if anybody wants to know. It is for who has authenticated the caller.
func NoteCaller(ctx context.Context, id, name, workspace string) {
	if found := callers.Of(ctx); found != nil {
		found.Store(&Caller{id, name, workspace})
	}
}
