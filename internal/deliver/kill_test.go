package deliver_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// disturbFor is how long processes are killed, and longer if too little has happened by then.
const disturbFor = 11 * time.Second

var killSeed = flag.Uint64("kill.seed", 0, "whom to kill and when, as an earlier run says; 0 draws one")

// Two processes on one database open gates, vote and send, and are killed whatever
// they are doing. Afterwards each gate has exactly one outcome, each timer has fired
// once, each delivery was tried in order until it arrived or was given up, and nothing
// that was acknowledged is lost.
func TestNothingIsLostOrDoneTwiceWhenProcessesAreKilled(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		seed := *killSeed
		for seed == 0 {
			seed = rand.Uint64()
		}
		t.Logf("-kill.seed=%d", seed)
		chance := rand.New(rand.NewPCG(seed, 0))
		db := storetest.Open(t, address, coreMigrations()...)
		post := &postbox{tries: map[string]int{}, answers: map[string][]int{}}
		r := newReceiver(t, post.answer)
		w := &witness{t: t}
		var nodes [2]*process
		var dirs [2]string
		start := func(i int) {
			nodes[i] = launch(t, w, orders{Address: address, Dir: dirs[i], URL: r.URL, Seed: chance.Uint64()})
		}
		for i := range nodes {
			dirs[i] = t.TempDir()
			start(i)
		}
		// Two that make the ledger's key together are another test's.
		testbed.Until(t, "both to be ready", func() bool { return w.count("ready") == 2 })
		kills := 0
		for over := time.Now().Add(disturbFor); time.Now().Before(over) || w.count("voted") == 0; {
			// Killing who holds the timers stops them for some seconds. The first kill of a
			// series comes while they fire, the others perhaps before they do again.
			seen := w.expiries()
			testbed.Until(t, "timers to fire", func() bool { return w.expiries() > seen })
			for range 2 + chance.IntN(3) {
				said := w.matching(anything) + chance.IntN(150)
				testbed.Until(t, "the processes to work", func() bool { return w.matching(anything) >= said })
				whom := [][]int{{0}, {1}, {0, 1}}[chance.IntN(3)]
				for _, i := range whom {
					nodes[i].kill()
				}
				for _, i := range whom {
					start(i)
				}
				kills += len(whom)
			}
		}
		for _, n := range nodes {
			n.quiet()
		}
		settle(t, db)
		for _, n := range nodes {
			n.stop()
		}
		t.Logf("%d kills; acknowledged: %d gates, %d votes, %d outcomes, %d deliveries; %d calls",
			kills, w.count("opened"), w.count("voted"), w.count("told"), w.count("queued"), len(r.got("")))
		l, err := ledger.Open(t.Context(), ledger.Options{DB: db, Dir: dirs[0], Projections: coreProjections()})
		if err == nil {
			err = l.Mismatch()
		}
		if err != nil {
			t.Fatal(err)
		}
		c := readChronicle(t, l)
		c.checkGates(w, gate.New(db, l, nil, nil), db)
		c.checkDeliveries(r, post, db)
		check, err := ledger.CheckRebuild(t.Context(), db, coreMigrations(), coreProjections(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range check.Differences {
			t.Errorf("%s\n live    %s\n rebuilt %s", d.Table, d.Live, d.Built)
		}
	})
}

// settle waits until no gate and no delivery has anything before it.
func settle(t *testing.T, db *store.DB) {
	t.Helper()
	testbed.Until(t, "everything to be settled", func() bool {
		var pending int
		err := db.Read.QueryRowContext(t.Context(), `SELECT (SELECT count(*) FROM gate_waiting) +
(SELECT count(*) FROM delivery WHERE status = 'pending')`).Scan(&pending)
		return err == nil && pending == 0
	})
}

// witness remembers what the processes have said, those that were killed too.
type witness struct {
	t     *testing.T
	mu    sync.Mutex
	words []word
}

func (w *witness) hear(said word) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.words = append(w.words, said)
	if said.What == "failed" {
		w.t.Errorf("a process failed: %s", said.Status)
	}
}

func (w *witness) matching(is func(word) bool) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, said := range w.words {
		if is(said) {
			n++
		}
	}
	return n
}

func anything(word) bool { return true }

func (w *witness) count(what string) int {
	return w.matching(func(said word) bool { return said.What == what })
}

// expiries counts how often somebody was told that a gate has expired.
func (w *witness) expiries() int {
	return w.matching(func(said word) bool { return said.What == "told" && said.By == "expiry" })
}

// process is a running victim.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	input  io.WriteCloser
	log    bytes.Buffer // whole when done
	done   chan struct{}
	killed bool
}

func launch(t *testing.T, w *witness, o orders) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.CommandContext(context.Background(), os.Args[0])
	p.cmd.Env = append(os.Environ(), ordersEnv+"="+string(text))
	p.cmd.Stderr = &p.log
	output, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.input, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	go func() {
		defer close(p.done)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			var said word
			if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
				t.Errorf("a process said %q", lines.Text())
			}
			w.hear(said)
		}
		_ = p.cmd.Wait()
	}()
	return p
}

// kill ends the process with SIGKILL. One that has ended by itself should not have.
func (p *process) kill() {
	if p.killed {
		return
	}
	p.killed = true
	_ = p.cmd.Process.Kill()
	<-p.done
	if p.cmd.ProcessState.Exited() {
		p.t.Errorf("a process ended by itself: %s\n%s", p.cmd.ProcessState, &p.log)
	}
}

// quiet makes the process begin nothing new.
func (p *process) quiet() { _, _ = io.WriteString(p.input, "quiet\n") }

// stop lets the process end in its own time.
func (p *process) stop() {
	p.killed = true
	_ = p.input.Close()
	testbed.Receive(p.t, "a process to stop", p.done)
	if !p.cmd.ProcessState.Success() {
		p.t.Errorf("a process did not stop as it should: %s\n%s", p.cmd.ProcessState, &p.log)
	}
}

// paths are the targets: two that are well, and one for each way of being ill.
var paths = []string{"/well", "/fine", "/flaky", "/down", "/slow", "/picky"}

// postbox is the mind of the receivers.
type postbox struct {
	mu      sync.Mutex
	tries   map[string]int   // per id and per path
	answers map[string][]int // per id
}

func (p *postbox) answer(w http.ResponseWriter, req *http.Request, c call) {
	if c.path == "/slow" {
		select {
		case <-time.After(40 * time.Millisecond):
		case <-req.Context().Done():
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tries[c.id]++
	p.tries[c.path]++
	code := http.StatusNoContent
	switch {
	case c.path == "/flaky" && p.tries[c.id] <= lot(c.id)%3,
		c.path == "/down" && p.tries[c.path] <= 20:
		code = http.StatusInternalServerError
	case c.path == "/picky" && lot(c.id)%2 == 0:
		code = http.StatusGone
	}
	p.answers[c.id] = append(p.answers[c.id], code)
	w.WriteHeader(code)
}

// lot draws by the id, so that the answer is the same whoever asks.
func lot(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return int(h.Sum32() % 1000)
}
