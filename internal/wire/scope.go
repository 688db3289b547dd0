package wire

import (
	"cmp"
	"context"

	"signalbox/internal/fault"
)

var scoped Carried[string]

// WithScope confines a call to one workspace: what belongs to others does not exist for it.
// The server sets it from the authenticated caller, never from what was sent.
func WithScope(ctx context.Context, workspace string) context.Context {
	return scoped.With(ctx, workspace)
}

// Scope is the workspace a call is confined to, "" when it may see all.
func Scope(ctx context.Context) string { return scoped.Of(ctx) }

// InScope reports whether a call may see what belongs to the workspace.
func InScope(ctx context.Context, workspace string) bool {
	scope := Scope(ctx)
	return scope == "" || scope == workspace
}

// Within is the workspace that a listing is restricted to: the one that is asked for, or the
// one that the call is confined to, "" for all. ok is false if the call may not see it; the
// listing is then empty.
func Within(ctx context.Context, asked string) (workspace string, ok bool) {
	workspace = cmp.Or(asked, Scope(ctx))
	return workspace, InScope(ctx, workspace)
}

// Unconfined refuses a call that is confined to one workspace. what begins the sentence about
// what the call would show or change.
func Unconfined(ctx context.Context, what string) error {
	if scope := Scope(ctx); scope != "" {
		return fault.New(fault.Forbidden, "%s the whole server, and your token is for the workspace %q alone.", what, scope)
	}
	return nil
}
