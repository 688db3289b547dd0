package wire

import (
	"cmp"
	"context"

	"signalbox/internal/fault"
)

type scopeKey struct{}

// WithScope confines a call to one workspace: what belongs to others is not there
// for it. The server sets it from who is asking, never from what was sent.
func WithScope(ctx context.Context, workspace string) context.Context {
	return context.WithValue(ctx, scopeKey{}, workspace)
}

// Scope is the workspace a call is confined to, "" when it may see all.
func Scope(ctx context.Context) string {
	workspace, _ := ctx.Value(scopeKey{}).(string)
	return workspace
}

// InScope reports whether a call may see what belongs to the workspace.
func InScope(ctx context.Context, workspace string) bool {
	scope := Scope(ctx)
	return scope == "" || scope == workspace
}

// Within is the workspace of which a listing shows something: the one that is asked for, or
// the one that the call is confined to, "" for all. ok is false if the call may see nothing of
// it.
func Within(ctx context.Context, asked string) (workspace string, ok bool) {
	workspace = cmp.Or(asked, Scope(ctx))
	return workspace, InScope(ctx, workspace)
}

// Unconfined refuses a call that is confined to one workspace. what is what the call
// would show or change.
func Unconfined(ctx context.Context, what string) error {
	if scope := Scope(ctx); scope != "" {
		return fault.New(fault.Forbidden, "%s the whole server, and your token is for the workspace %q alone.", what, scope)
	}
	return nil
}
