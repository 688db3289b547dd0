package rulebook

import "context"

// Await waits until a version is in force on this node.
func (b *Book) Await(ctx context.Context, number int64) error { return b.await(ctx, Layer{}, number) }
