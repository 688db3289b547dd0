package roster

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// maxCached bounds the memory of the cache; a full one starts anew.
const maxCached = 20_000

// cache remembers whom keys stand for. It is only used while Run follows the
// ledger, and is emptied by every entry about holders or keys, whichever node made it.
type cache struct {
	mu     sync.RWMutex
	live   bool
	round  int // counts the times it was emptied
	byHash map[string]holding
}

// holding is a key as it was read; whether it is valid depends on the time.
type holding struct {
	who              Identity
	expires, revoked int64
	suspendedUntil   int64
}

// at is who it is at a moment, in microseconds: a suspension may be over.
func (h holding) at(now int64) Identity {
	h.who.Suspended = suspendedAt(h.who.Suspended, h.suspendedUntil, now)
	return h.who
}

func suspendedAt(suspended bool, until, now int64) bool {
	return suspended && (until == 0 || now < until)
}

func (c *cache) find(hash []byte) (h holding, found bool, round int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.live {
		h, found = c.byHash[string(hash)]
	}
	return h, found, c.round
}

// put remembers what was read since the round began; what was read before the cache
// was emptied may be old.
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

// forget empties the cache and leaves it in use if it is.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round, c.byHash = c.round+1, map[string]holding{}
}

// Forget makes the next look-up read the tables: for who has seen an entry before the
// cache has.
func (r *Roster) Forget() { r.cache.forget() }

func (c *cache) empty(live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.round, c.byHash = live, c.round+1, map[string]holding{}
}

// about are the nouns of the entries that can change who a key stands for.
var about = []string{"agent", "operator", "owner", "key", "public_key", "state"}

// Run keeps the cache true by following the ledger, and saves who was seen, until ctx
// ends.
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
		if noun, _, _ := strings.Cut(e.Kind, "."); slices.Contains(about, noun) {
			r.cache.forget()
		}
	}
	return nil
}
