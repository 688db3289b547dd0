package refusal

import (
	"context"
	"errors"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Reason is why a call was refused.
type Reason string

// The reasons. They are stored, and never change their meaning.
const (
	MissingKey       Reason = "missing_key"
	WrongKey         Reason = "wrong_key" // nobody has it
	ExpiredKey       Reason = "expired_key"
	RevokedKey       Reason = "revoked_key"
	RateLimited      Reason = "rate_limited"      // by the limit of the key, the agent or the address
	NotAuthenticated Reason = "not_authenticated" // any other 401: the key of somebody else, a session that has ended
	UserToken        Reason = "user_token"        // a user's token that proves nothing, or not for this agent
	OtherWorkspace   Reason = "workspace"         // the call names a workspace that is not the caller's
	WrongHandoff     Reason = "wrong_handoff"     // the token of a handoff that is not valid there
	Others           Reason = "others"            // of any source, beyond what is told apart in a minute
)

// Cause is what is known of a refusal where its reason is found.
type Cause struct {
	Reason    Reason
	Workspace string // of the holder, "" if nobody is known
	Actor     string // the holder as entries name it, such as agent:billing; "" if nobody is known
	Agent     string // its id, if it is an agent
	Key       string // the key's id, never its text
}

// refused is an error with its cause.
type refused struct {
	error
	cause Cause
}

func (r *refused) Unwrap() error { return r.error }

// Because says why an error refuses a call. The error stays what it is.
func Because(err error, c Cause) error { return &refused{err, c} }

// NoKey says of an error that it refuses a call without a key.
func NoKey(err error) error { return Because(err, Cause{Reason: MissingKey}) }

// causeOf is why an error refuses a call. It is false for an error that is no refusal, or that has an entry of its
// own, as a deferral of the policy has.
func causeOf(err error) (Cause, bool) {
	if r, ok := errors.AsType[*refused](err); ok {
		return r.cause, true
	}
	return Cause{Reason: NotAuthenticated}, fault.Is(err, fault.Unauthenticated)
}

// Call is one call: who made it from where, and what it was.
type Call struct {
	Source string // the address without a port
	Name   string // the method and the route as it is declared, without what the caller put into it
}

// noting is a call with the log in which its refusal is noted.
type noting struct {
	log  *Log
	call Call
}

var carried wire.Carried[noting]

// With is a context whose refusals are noted.
func With(ctx context.Context, l *Log, c Call) context.Context {
	return carried.With(ctx, noting{l, c})
}

// Note notes the error with which a call is answered, if it is a refusal. It is called where the answer is made, once.
func Note(ctx context.Context, err error) {
	n := carried.Of(ctx)
	if n.log == nil || err == nil {
		return
	}
	if cause, refused := causeOf(err); refused {
		n.log.add(sumKey{n.call, cause})
	}
}
