package main

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// witness remembers what the server has acknowledged.
type witness struct {
	mu    sync.Mutex
	acked map[string]bool
	tried int
}

// more waits until so many more calls were acknowledged.
func (w *witness) more(t *testing.T, n int) {
	t.Helper()
	count := func() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.acked) }
	want := count() + n
	testbed.Until(t, "more calls to be acknowledged", func() bool { return count() >= want })
}

// agents adds agents from many clients until stop is closed. A call whose answer
// was lost may or may not have been done; it is not tried again.
func (w *witness) agents(p *process, clients int, stop <-chan struct{}) *sync.WaitGroup {
	var wg sync.WaitGroup
	for range clients {
		repeat(&wg, stop, func() {
			w.mu.Lock()
			w.tried++
			name := fmt.Sprintf("agent-%d", w.tried)
			w.mu.Unlock()
			status, answer, err := p.call("POST", "/ops/agents", fmt.Sprintf(`{"name":%q}`, name))
			if err == nil && status == http.StatusCreated && strings.Contains(answer, name) {
				w.mu.Lock()
				w.acked[name] = true
				w.mu.Unlock()
			}
		})
	}
	return &wg
}

// repeat takes a step again and again, beside the test, until stop is closed.
func repeat(wg *sync.WaitGroup, stop <-chan struct{}, step func()) {
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				step()
			}
		}
	})
}

// check reads the whole ledger: it has no gap, every acknowledged agent once, and
// none twice.
func (w *witness) check(t *testing.T, p *process) {
	t.Helper()
	type entry struct {
		Seq  int64  `json:"seq"`
		Kind string `json:"kind"`
		Body struct {
			Name string `json:"name"`
		} `json:"body"`
	}
	seen := map[string]int{}
	for after := int64(0); ; {
		var page struct {
			Entries []entry `json:"entries"`
			Next    int64   `json:"next"`
		}
		p.get(fmt.Sprintf("/ops/ledger?limit=1000&after=%d", after), &page)
		for i, e := range page.Entries {
			if e.Seq != after+int64(i)+1 {
				t.Fatalf("entry %d follows %d", e.Seq, after+int64(i))
			}
			if e.Kind == "agent.added" {
				seen[e.Body.Name]++
			}
		}
		after = page.Next
		if len(page.Entries) == 0 {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range w.acked {
		if seen[name] != 1 {
			t.Errorf("%s was acknowledged and is in the ledger %d times", name, seen[name])
		}
	}
	for name, n := range seen {
		if n > 1 {
			t.Errorf("%s is in the ledger %d times", name, n)
		}
	}
}

// verify proves the tree offline and compares every table with the ledger.
func (w *witness) verify(t *testing.T, p *process, dbFlags ...string) {
	t.Helper()
	w.check(t, p)
	file := filepath.Join(t.TempDir(), "export")
	mustRun(t, p.dir, "ledger", "export", "--out", file)
	mustRun(t, p.dir, "ledger", "verify", file)
	if out := mustRun(t, p.dir, append([]string{"ledger", "rebuild", "--check"}, dbFlags...)...); !strings.Contains(out,
		" 0 differences") {
		t.Errorf("rebuild --check: %s", out)
	}
	if len(w.acked) == 0 {
		t.Error("nothing was acknowledged; the test shows nothing")
	}
	t.Logf("%d acknowledged of %d tried", len(w.acked), w.tried)
}

func TestNothingAcknowledgedIsLostWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	w := &witness{acked: map[string]bool{}}
	for range 20 {
		p := up(t, dir)
		w.check(t, p)
		stop := make(chan struct{})
		clients := w.agents(p, 8, stop)
		w.more(t, rand.IntN(150))
		p.kill()
		close(stop)
		clients.Wait()
	}
	w.verify(t, up(t, dir))
}

func TestNothingAcknowledgedIsLostWhenPostgreSQLIsKilled(t *testing.T) {
	t.Parallel()
	cluster := storetest.NewCluster(t)
	dir := t.TempDir()
	w := &witness{acked: map[string]bool{}}
	p := up(t, dir, "--db", cluster.Address)
	for round := range 9 {
		stop := make(chan struct{})
		clients := w.agents(p, 8, stop)
		w.more(t, 1+rand.IntN(200))
		// In turn: the database alone, the server alone, both.
		if round%3 != 0 {
			p.kill()
		}
		if round%3 != 1 {
			cluster.Kill()
		}
		close(stop)
		clients.Wait()
		if round%3 != 1 {
			cluster.Start(t)
		}
		if round%3 != 0 {
			p = up(t, dir, "--db", cluster.Address)
		} else {
			waitReady(t, p)
		}
		w.check(t, p)
	}
	w.verify(t, p, "--db", cluster.Address)
}

// waitReady waits until a server that lost its database works again by itself.
func waitReady(t *testing.T, p *process) {
	t.Helper()
	testbed.Until(t, "the server to come back", func() bool {
		status, _, err := p.call("GET", "/readyz", "")
		return err == nil && status == http.StatusOK
	}, p.log)
}

func TestSeveralProcessesShareOneLedgerAndOneIsKilled(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	w := &witness{acked: map[string]bool{}}
	var nodes []*process
	stop := make(chan struct{})
	var clients []*sync.WaitGroup
	for range 3 {
		p := up(t, t.TempDir(), "--db", address)
		nodes = append(nodes, p)
		clients = append(clients, w.agents(p, 4, stop))
	}
	w.more(t, 100)
	nodes[1].kill()
	w.more(t, 100)
	close(stop)
	for _, c := range clients {
		c.Wait()
	}
	w.check(t, nodes[2])
	w.verify(t, nodes[0], "--db", address)
}
