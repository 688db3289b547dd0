package ledger

import (
	"testing"
	"testing/synctest"
	"time"
)

// A transaction waits for as many callers as the last one had, but not for ever, not for a
// crowd, and not at all for who is alone.
func TestATransactionWaitsForAFewCallers(t *testing.T) {
	for name, c := range map[string]struct {
		last int             // callers of the last transaction
		come []time.Duration // when others write, after the first
		want int
		took time.Duration
	}{
		"alone":                  {last: 1, come: []time.Duration{gatherFor / 2}, want: 1},
		"what is there is taken": {last: 1, come: []time.Duration{0, 0}, want: 3},
		"as many as the last": {
			last: 3, come: []time.Duration{gatherFor / 3, gatherFor / 2, gatherFor * 2 / 3}, want: 3,
			took: gatherFor / 2,
		},
		"not for ever":    {last: 3, come: []time.Duration{gatherFor / 2, 2 * gatherFor}, want: 2, took: gatherFor},
		"not for a crowd": {last: 500, come: make([]time.Duration, fewCallers-1), want: fewCallers},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &Ledger{queue: make(chan *request, maxQueue)}
				for _, after := range c.come {
					if after == 0 {
						l.queue <- &request{}
						continue
					}
					time.AfterFunc(after, func() { l.queue <- &request{} })
				}
				begun := time.Now()
				batch := l.gather([]*request{{}}, c.last)
				if took := time.Since(begun); len(batch) != c.want || took != c.took {
					t.Errorf("%d callers after %s, and not %d after %s", len(batch), took, c.want, c.took)
				}
			})
		})
	}
}
