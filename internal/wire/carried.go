package wire

import "context"

// Carried is a value that the context of a call carries, such as who makes it. The address of a
// Carried is the key, so each is a variable of its package, and nobody else can set or read it.
type Carried[T any] struct {
	_ byte // variables without a size may share an address
}

// With is a context that carries v.
func (c *Carried[T]) With(ctx context.Context, v T) context.Context {
	return context.WithValue(ctx, c, v)
}

// Of is what a context carries, the zero value if nothing was put there.
func (c *Carried[T]) Of(ctx context.Context) T {
	v, _ := ctx.Value(c).(T)
	return v
}
