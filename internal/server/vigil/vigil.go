// Package vigil ends streams whose caller has lost the right to read them. A stream lasts for days, and its caller was
// asked for a key only at its beginning.
//
// One goroutine looks for all streams: once a second, and once for each credential, however many streams it has
// opened. With a goroutine and a timer for each stream, 5,000 watchers that see nothing would take as much of a
// processor as calls do. It knows no keys and no roles: who opens a stream says how to look.
package vigil

import (
	"context"
	"crypto/sha256"
	"sync"
	"time"
)

// every is how often a credential is looked at. A revoked key ends its streams within about this time.
const every = time.Second

// Credential is what a call has shown, hashed: tokens do not stand in memory for longer than their call.
type Credential [sha256.Size]byte

// Of is the credential that consists of these texts.
func Of(parts ...string) Credential {
	h := sha256.New()
	for _, part := range parts {
		sum := sha256.Sum256([]byte(part))
		h.Write(sum[:])
	}
	return Credential(h.Sum(nil))
}

// Vigil looks after streams while Run runs. The zero value is ready for use.
type Vigil struct {
	mu     sync.Mutex
	groups map[Credential]*group
	next   int
}

// group are the streams of one credential.
type group struct {
	lost func(context.Context) bool
	ends map[int]context.CancelFunc
}

// Watch is a context that ends with ctx, and when lost reports that the credential no longer opens what it has opened.
// lost is that of the first stream of a credential, so it must not need the stream's own context. end has to be called.
func (v *Vigil) Watch(ctx context.Context, c Credential, lost func(context.Context) bool) (_ context.Context,
	end func(),
) {
	ctx, cancel := context.WithCancel(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	g := v.groups[c]
	if g == nil {
		if v.groups == nil {
			v.groups = map[Credential]*group{}
		}
		g = &group{lost, map[int]context.CancelFunc{}}
		v.groups[c] = g
	}
	v.next++
	id := v.next
	g.ends[id] = cancel
	return ctx, func() { cancel(); v.leave(c, g, id) }
}

// leave forgets a stream, and its group with the last of them.
func (v *Vigil) leave(c Credential, g *group, id int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(g.ends, id)
	if len(g.ends) == 0 && v.groups[c] == g {
		delete(v.groups, c)
	}
}

// Run looks until ctx ends.
func (v *Vigil) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			v.Look(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// Look looks at every credential once. The lock is not held meanwhile: a look may ask the database.
func (v *Vigil) Look(ctx context.Context) {
	v.mu.Lock()
	all := make(map[Credential]*group, len(v.groups))
	for c, g := range v.groups {
		all[c] = g
	}
	v.mu.Unlock()
	for c, g := range all {
		if ctx.Err() != nil {
			return
		}
		if !g.lost(ctx) {
			continue
		}
		v.mu.Lock()
		if v.groups[c] == g { // who comes with it now begins a group of its own
			delete(v.groups, c)
		}
		for _, end := range g.ends {
			end()
		}
		v.mu.Unlock()
	}
}
