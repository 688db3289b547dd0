package roster

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// holding is a key as it was read. Times are kept beside the identity, in microseconds and 0
// for never, since whether they are over depends on the moment of each call.
type holding struct {
	who              Identity
	expires, revoked int64
	suspendedUntil   int64
	user             *User    // of a user that was looked up, nil if there is none
	open             []string // to which others a workspace is open
}

// identityAt is the identity at a moment, in microseconds: a suspension may be over.
func (h holding) identityAt(now int64) Identity {
	h.who.Suspended = suspendedAt(h.who.Suspended, h.suspendedUntil, now)
	return h.who
}

// suspendedAt reports whether a suspension, which may have an end, still holds.
func suspendedAt(suspended bool, until, now int64) bool {
	return suspended && (until == 0 || now < until)
}

// Forget makes the next look-up read the tables. It is for callers that know of an entry that
// the cache may not have followed yet.
func (r *Roster) Forget() { r.cache.Forget() }

// identityNouns are the nouns of the entries that can change who a key stands for, or who knows of whom.
var identityNouns = []string{"agent", "operator", "owner", "user", "key", "public_key", "state", "workspace"}

// Run keeps the cache current by following the ledger, and saves presence, until ctx ends. The
// cache is live only inside of it: without Run every call reads the tables.
func (r *Roster) Run(ctx context.Context) error {
	var saving sync.WaitGroup
	saving.Go(func() { r.presence.Run(ctx) })
	defer saving.Wait()
	defer r.cache.Empty(false)
	caching := func(context.Context) error {
		r.cache.Empty(true)
		return nil
	}
	for e := range r.ledger.FollowNow(ctx, caching) {
		if noun, _, _ := strings.Cut(e.Kind, "."); slices.Contains(identityNouns, noun) {
			r.cache.Forget()
		}
	}
	return nil
}
