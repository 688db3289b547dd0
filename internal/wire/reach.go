package wire

import "context"

// Reach is what the server knows of the way that a request took. The zero value is a
// request of a program on this machine, or one that came as the configuration expects.
type Reach struct {
	// Forwarded says that a proxy has passed the request on which the configuration does not
	// name. The address of the connection is then the proxy's and says nothing about the caller.
	Forwarded bool
	// Unexpected says that the request was forwarded to a server that its configuration lets
	// this machine alone reach. What is open to this machine is closed to such a request.
	Unexpected bool
	// Secure says that the caller's end of the connection has TLS.
	Secure bool
}

var reach Carried[Reach]

// WithReach notes which way a request took. The server sets it from the connection, and from
// headers of proxies that it trusts.
func WithReach(ctx context.Context, r Reach) context.Context { return reach.With(ctx, r) }

// ReachOf is the way that a request took.
func ReachOf(ctx context.Context) Reach { return reach.Of(ctx) }
