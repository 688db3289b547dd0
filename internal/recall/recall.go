// Package recall remembers what was read from tables and entries, for as long as somebody follows the ledger.
//
// It owns the one difficulty of a cache: what was read before an entry must not be remembered after it. It must not know
// what it remembers, nor which entries change that.
package recall

import "sync"

// most bounds the memory of a cache; a full one is emptied.
const most = 20_000

// Cache remembers values by their keys while it is live. It is emptied as a whole: entries that change what it has are
// rare, and deciding which values they concern could be wrong. The zero value remembers nothing until Empty(true).
type Cache[K comparable, V any] struct {
	mu    sync.RWMutex
	live  bool
	round int // counts the times it was emptied
	known map[K]V
}

// Find looks a key up. round is for Put, and has to be taken before the tables are read.
func (c *Cache[K, V]) Find(key K) (value V, found bool, round int) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.live {
		value, found = c.known[key]
	}
	return value, found, c.round
}

// Put remembers what was read, unless the cache was emptied since the round of Find: then what was read may be older
// than the entry that emptied it.
func (c *Cache[K, V]) Put(key K, value V, round int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.live || c.round != round {
		return
	}
	if len(c.known) >= most {
		clear(c.known)
	}
	c.known[key] = value
}

// Get is the value of a key, or what load finds and the cache then has.
func (c *Cache[K, V]) Get(key K, load func() (V, error)) (V, error) {
	value, found, round := c.Find(key)
	if found {
		return value, nil
	}
	value, err := load()
	if err == nil {
		c.Put(key, value, round)
	}
	return value, err
}

// Forget empties the cache and leaves it in use if it is.
func (c *Cache[K, V]) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.round, c.known = c.round+1, map[K]V{}
}

// Empty empties the cache and turns it on or off.
func (c *Cache[K, V]) Empty(live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.live, c.round, c.known = live, c.round+1, map[K]V{}
}
