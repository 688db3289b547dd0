package deliver_test

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"signalbox/internal/deliver"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// judge is a receiver's mind: it answers by chance, stays with its final answers, and
// complains when a delivery comes before the one before it has a final answer.
type judge struct {
	t     testing.TB
	seed  int
	mu    sync.Mutex
	place map[string]int      // of a delivery in its line
	line  map[string][]string // the ids of a path, in order
	final map[string]int      // the final answer to an id
	count map[string]int      // calls per id
	high  map[string]int      // the furthest place that was tried, per path
}

func (j *judge) answer(w http.ResponseWriter, _ *http.Request, c call) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.count[c.id]++
	place, line := j.place[c.id], j.line[c.path]
	if place < j.high[c.path] {
		j.t.Errorf("%s: number %d came after number %d", c.path, place, j.high[c.path])
	}
	if place > 0 && j.final[line[place-1]] == 0 {
		j.t.Errorf("%s: number %d came before number %d had an outcome", c.path, place, place-1)
	}
	j.high[c.path] = place
	if code, ok := j.final[c.id]; ok {
		w.WriteHeader(code)
		return
	}
	h := fnv.New32a()
	_, _ = fmt.Fprintf(h, "%d %s %d", j.seed, c.id, j.count[c.id])
	switch chance := h.Sum32() % 100; {
	case chance < 5:
		j.final[c.id] = http.StatusGone
	case chance < 65:
		j.final[c.id] = http.StatusOK
	default:
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	w.WriteHeader(j.final[c.id])
}

// known puts deliveries in line. It is called before they are sent.
func (j *judge) known(path string, ids []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, id := range ids {
		j.place[id] = len(j.line[path])
		j.line[path] = append(j.line[path], id)
	}
}

func (j *judge) finally(id string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.final[id]
}

func TestEveryDeliveryIsTriedInOrderUntilItHasAnOutcomeWhateverIsKilled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, _ string) {
		empty := storetest.SQLite
		if t.Name()[len(t.Name())-1] == 's' { // postgres
			empty = storetest.Postgres
		}
		rapid.Check(t, func(rt *rapid.T) {
			address := empty(t)
			j := &judge{
				t: t, seed: rapid.Int().Draw(rt, "seed"),
				place: map[string]int{}, line: map[string][]string{}, final: map[string]int{}, count: map[string]int{},
				high: map[string]int{},
			}
			r := newReceiver(t, j.answer)
			c := &ledgertest.Clock{}
			watcher := open(t, address, c) // queues, and runs nothing
			defer watcher.stop()
			for path := range rapid.IntRange(1, 5).Draw(rt, "targets") {
				var all []deliver.Delivery
				for range rapid.IntRange(1, 8).Draw(rt, "deliveries") {
					all = append(all, hook(fmt.Sprintf("%s/%d", r.URL, path)))
				}
				j.known(fmt.Sprintf("/%d", path), watcher.queue(t, all...))
			}
			disturb(t, rt, address, c)
			last := open(t, address, c, mortal)
			last.core.Run(last.Run)
			defer last.stop()
			for _, ids := range j.line {
				for _, id := range ids {
					testbed.Until(t, id+" to have an outcome", func() bool { return watcher.get(t, id).Status != deliver.Pending })
					code := j.finally(id)
					if d := watcher.get(t, id); d.Status != map[int]string{200: deliver.Delivered, 410: deliver.Dead}[code] {
						t.Errorf("the receiver answered %d and the delivery is %s", code, d.Status)
					}
				}
			}
			watcher.core.WantClean()
		})
	})
}

// disturb starts, stops and kills two runners.
func disturb(t *testing.T, rt *rapid.T, address string, c *ledgertest.Clock) {
	t.Helper()
	var nodes [2]*node
	for range rapid.IntRange(1, 8).Draw(rt, "disturbances") {
		i := rapid.IntRange(0, 1).Draw(rt, "node")
		switch kill := rapid.Bool().Draw(rt, "kill"); {
		case nodes[i] == nil:
			nodes[i] = open(t, address, c, mortal)
			nodes[i].core.Run(nodes[i].Run)
		case kill:
			nodes[i].kill()
			nodes[i] = nil
		default:
			nodes[i].stop()
			nodes[i] = nil
		}
		time.Sleep(time.Duration(rapid.IntRange(0, 40).Draw(rt, "ms")) * time.Millisecond)
	}
	for _, n := range nodes {
		if n != nil {
			n.kill()
		}
	}
}

func TestTwoRunnersNeverSendTheSameAtTheSameTime(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		// notices overlaps
		r := newReceiver(t, func(http.ResponseWriter, *http.Request, call) { time.Sleep(time.Millisecond) })
		c := &ledgertest.Clock{}
		a, b := open(t, address, c), open(t, address, c)
		var all []deliver.Delivery
		for i := range 300 {
			all = append(all, hook(fmt.Sprintf("%s/%d", r.URL, i%12)))
		}
		ids := a.queue(t, all...)
		a.core.Run(a.Run)
		b.core.Run(b.Run)
		for _, id := range ids {
			a.becomes(t, id, deliver.Delivered)
		}
		if got := len(r.got("")); got != len(ids) {
			t.Errorf("%d calls for %d deliveries", got, len(ids))
		}
		a.core.WantClean()
	})
}

func TestTheLanesOfADeadRunnerAreTakenOverAndItStartsAnewWhenItWasOnlyAway(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		release := make(chan struct{})
		first := make(chan struct{}, 100)
		r := newReceiver(t, func(_ http.ResponseWriter, req *http.Request, _ call) {
			first <- struct{}{}
			select {
			case <-release:
			case <-req.Context().Done():
			}
		})
		c := &ledgertest.Clock{}
		a, b := open(t, address, c, mortal), open(t, address, c, mortal)
		id := a.queue(t, hook(r.URL+"/held"))[0]
		a.core.Run(a.Run)
		<-first
		a.kill()
		close(release)
		b.core.Run(b.Run)
		begun := time.Now()
		b.becomes(t, id, deliver.Delivered)
		if took := time.Since(begun); took < mortalLease {
			t.Errorf("it was taken over after %v, with a lease of %v", took, mortalLease)
		}
		b.core.WantClean()
	})
}

func TestARunnerThatWasTakenForDeadStartsAnew(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		r := newReceiver(t, status(500))
		n := start(t, address)
		id := n.queue(t, hook(r.URL+"/taken"))[0]
		n.tried(t, id, 2)
		// What another runner does to one that it takes for dead.
		for _, table := range []string{"delivery_runner", "delivery_claim"} {
			tx, err := n.db.Begin(t.Context(), "delivery_lock")
			if err != nil {
				t.Fatal(err)
			}
			tx.Exec("DELETE FROM " + table)
			if _, err := tx.Commit(false); err != nil {
				t.Fatal(err)
			}
		}
		n.tried(t, id, n.get(t, id).Attempts+3)
	})
}
