package roster

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// maxCached bounds the memory of the cache; a full one is emptied.
const maxCached = 20_000

// cache remembers which identity a key belongs to. It is only used while Run follows the
// ledger, and is emptied by every entry about holders or keys, whichever node made it. It is
// emptied as a whole: such entries are rare, and deciding which keys they concern could be
// wrong.
type cache struct {
	mu     sync.RWMutex
	live   bool
	round  int // counts the times it was emptied
	byHash map[string]holding
	open   map[string][]string // to which others workspaces are open
}

// holding is a key as it was read. Times are kept beside the identity, in microseconds and 0
// for never, since whether they are over depends on the moment of each call.
type holding struct {
	who              Identity
	expires, revoked int64
	suspendedUntil   int64
	user             *User // of a user that was looked up, nil if there is none
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

// find looks a key up. round is for put, and has to be taken before the tables are read.
func (c *cache) find(hash []byte) (h holding, found bool, round int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.live {
		h, found = c.byHash[string(hash)]
	}
	return h, found, c.round
}

// put remembers what was read, unless the cache was emptied since the round of find: then what
// was read may be older than the entry that emptied it.
func (c *cache) put(hash []byte, h holding, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live || c.round != round {
		return
	}
	if len(c.byHash) >= maxCached {
		clear(c.byHash)
	}
	c.byHash[string(hash)] = h
}

// findOpen is find for the workspaces that one is open to, and putOpen is put.
func (c *cache) findOpen(workspace string) (open []string, found bool, round int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.live {
		open, found = c.open[workspace]
	}
	return open, found, c.round
}

func (c *cache) putOpen(workspace string, open []string, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live || c.round != round {
		return
	}
	if c.open == nil || len(c.open) >= maxCached {
		c.open = map[string][]string{}
	}
	c.open[workspace] = open
}

// forget empties the cache and leaves it in use if it is.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round, c.byHash, c.open = c.round+1, map[string]holding{}, nil
}

// Forget makes the next look-up read the tables. It is for callers that know of an entry that
// the cache may not have followed yet.
func (r *Roster) Forget() { r.cache.forget() }

// empty empties the cache and turns it on or off.
func (c *cache) empty(live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.round, c.byHash, c.open = live, c.round+1, map[string]holding{}, nil
}

// identityNouns are the nouns of the entries that can change who a key stands for, or who knows of whom.
var identityNouns = []string{"agent", "operator", "owner", "user", "key", "public_key", "state", "workspace"}

// Run keeps the cache current by following the ledger, and saves presence, until ctx ends. The
// cache is live only inside of it: without Run every call reads the tables.
func (r *Roster) Run(ctx context.Context) error {
	var saving sync.WaitGroup
	saving.Go(func() { r.keepPresence(ctx) })
	defer saving.Wait()
	defer r.cache.empty(false)
	caching := func(context.Context) error {
		r.cache.empty(true)
		return nil
	}
	for e := range r.ledger.FollowNow(ctx, caching) {
		if noun, _, _ := strings.Cut(e.Kind, "."); slices.Contains(identityNouns, noun) {
			r.cache.forget()
		}
	}
	return nil
}
