// Package made counts the decisions that this process has made, by verdict, protocol and rule. It is for metrics: the
// numbers begin at 0 with the process, each node has its own, and nothing is decided by them. It must not know what a
// decision is about, and takes bounded memory whatever names it is given.
package made

import (
	"sync"
	"sync/atomic"
)

const (
	// most is how many kinds of decisions are told apart.
	most = 1000
	// Other stands for the rules beyond that.
	Other = "(other)"
)

// Kind is a kind of decisions.
type Kind struct{ Workspace, Protocol, Verdict, Rule string }

// Tally counts decisions. The zero value is ready for use, and safe for concurrent use.
type Tally struct {
	mu  sync.RWMutex
	all map[Kind]*atomic.Int64
}

// Count counts one decision.
func (t *Tally) Count(k Kind) {
	t.mu.RLock()
	n := t.all[k]
	t.mu.RUnlock()
	if n == nil {
		n = t.begin(k)
	}
	n.Add(1)
}

// begin is the number of a kind that has none yet.
func (t *Tally) begin(k Kind) *atomic.Int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.all == nil {
		t.all = map[Kind]*atomic.Int64{}
	}
	if t.all[k] == nil && len(t.all) >= most {
		k = Kind{Verdict: k.Verdict, Rule: Other, Workspace: Other, Protocol: Other}
	}
	if t.all[k] == nil {
		t.all[k] = &atomic.Int64{}
	}
	return t.all[k]
}

// Each calls fn with every kind and its number.
func (t *Tally) Each(fn func(Kind, int64)) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for k, n := range t.all {
		fn(k, n.Load())
	}
}
