package record_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/record"
	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// box is a server of runs over a real ledger. before and after may break a call off.
type box struct {
	runs          *run.Runs
	url           string
	before, after func() bool
}

func start(t testing.TB, address string) *box {
	t.Helper()
	return startWith(t, address, 0)
}

// startWith is start with another lease.
func startWith(t testing.TB, address string, lease time.Duration) *box {
	t.Helper()
	base, core := runtest.Open(t, address)
	base.Run()
	never := func() bool { return false }
	b := &box{runs: run.New(core, run.Options{Lease: lease}), before: never, after: never}
	mux := http.NewServeMux()
	for _, route := range b.runs.Routes() {
		mux.HandleFunc(route.Method+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
			if b.before() {
				panic(http.ErrAbortHandler)
			}
			answer := httptest.NewRecorder()
			if err := route.Handle(answer, r); err != nil {
				wire.Fail(answer, err)
			}
			if b.after() { // it is done, and the caller does not hear of it
				panic(http.ErrAbortHandler)
			}
			for name, values := range answer.Header() {
				w.Header()[name] = values
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(answer.Body.Bytes())
		})
	}
	s := httptest.NewServer(mux)
	s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(s.Close)
	b.url = s.URL
	return b
}

func (b *box) server() record.Server {
	return record.Server{URL: func() (string, error) { return b.url, nil }, HTTP: record.NewHTTP()}
}

func (b *box) open(t testing.TB) run.Run {
	t.Helper()
	r, err := b.server().Open(t.Context(), run.Request{Engine: "amp", Prompt: "go", Recorded: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func event(i int) engine.Event {
	return engine.Event{
		Type: engine.Acted, Engine: "amp", Phase: engine.Begun,
		Action: &engine.Action{ID: fmt.Sprint(i), Kind: engine.Command, Title: "ls", Detail: map[string]any{}},
	}
}

func end() engine.Event {
	yes := true
	return engine.Event{Type: engine.Completed, Engine: "amp", OK: &yes}
}

// TestAFullDiskIsSaidAtOnce, and that it is over: meanwhile the run is held up.
func TestAFullDiskIsSaidAtOnce(t *testing.T) {
	b := start(t, storetest.SQLite(t))
	r := b.open(t)
	var full atomic.Bool
	full.Store(true)
	disk := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		wire.Fail(w, fault.New(fault.StoreFull, "The disk of the database is full."))
	}))
	t.Cleanup(disk.Close)
	server := b.server()
	server.URL = func() (string, error) {
		if full.Load() {
			return disk.URL, nil
		}
		return b.url, nil
	}
	recorder := server.Begin(r.ID, 0, func(err error) { t.Errorf("the run was stopped: %v", err) })
	said := make(chan string, 10)
	recorder.Trouble = func(why string) { said <- why }
	done := make(chan error, 1)
	go func() { done <- recorder.Run(t.Context()) }()
	began := time.Now()
	recorder.Event(event(0), engine.Usage{Source: "amp"})
	if why := testbed.Receive(t, "the trouble", said); why != "The disk of the database is full." {
		t.Errorf("%q", why)
	}
	t.Logf("said after %s", time.Since(began))
	full.Store(false)
	if why := testbed.Receive(t, "its end", said); why != "" {
		t.Errorf("%q", why)
	}
	recorder.Event(end(), engine.Usage{Source: "amp"})
	recorder.Close()
	if err := testbed.Receive(t, "the end", done); err != nil {
		t.Error(err)
	}
	if _, err := (record.Server{URL: func() (string, error) { return disk.URL, nil }, HTTP: record.NewHTTP()}).Open(t.Context(),
		run.Request{Engine: "amp", Prompt: "go", Recorded: true}); err == nil || err.Error() != "The disk of the database is full." {
		t.Errorf("%v", err)
	}
}

// TestNothingIsLostOrTwiceOnABadConnection breaks every third call off, before or after
// the server has done what it asks for.
func TestNothingIsLostOrTwiceOnABadConnection(t *testing.T) {
	b := start(t, storetest.SQLite(t))
	r := b.open(t)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(1, 2))
	var calls atomic.Int64
	sometimes := func() bool { calls.Add(1); mu.Lock(); defer mu.Unlock(); return random.IntN(3) == 0 }
	b.before, b.after = sometimes, sometimes
	recorder := b.server().Begin(r.ID, 0, func(err error) { t.Errorf("the run was stopped: %v", err) })
	done := make(chan error, 1)
	go func() { done <- recorder.Run(t.Context()) }()
	for i := range 400 {
		recorder.Event(event(i), engine.Usage{Source: "amp"})
		if i%20 == 0 { // so that they are sent in many calls
			sent := calls.Load()
			testbed.Until(t, "a call", func() bool { return calls.Load() > sent })
		}
	}
	recorder.Event(end(), engine.Usage{Source: "amp"})
	recorder.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var n int64
	if err := b.runs.Follow(t.Context(), r.ID, 0, func(all []run.Numbered) error {
		for _, e := range all {
			n++
			if e.N != n || e.N <= 400 && !strings.Contains(string(e.Event), fmt.Sprintf(`"id":"%d"`, n-1)) {
				t.Errorf("event %d: %s", e.N, e.Event)
			}
		}
		return nil
	}); err != nil || n != 401 {
		t.Errorf("%v, %d events", err, n)
	}
}

func TestWhatCannotBeRecordedStopsTheRun(t *testing.T) {
	b := start(t, storetest.SQLite(t))
	r := b.open(t)
	ctx, stop := context.WithCancelCause(t.Context())
	other := b.server().Begin(r.ID, 0, stop)
	go func() { _ = other.Run(t.Context()) }()
	other.Event(end(), engine.Usage{})
	other.Event(event(1), engine.Usage{})
	<-ctx.Done()
	var cause process.StoppedError
	if !errors.As(context.Cause(ctx), &cause) || !strings.Contains(cause.Reason, "can no longer be recorded") {
		t.Errorf("%v", context.Cause(ctx))
	}
	other.Close()
}

func TestAnOrderToStopEndsTheRun(t *testing.T) {
	b := start(t, storetest.SQLite(t))
	r := b.open(t)
	ctx, stop := context.WithCancelCause(t.Context())
	recorder := b.server().Begin(r.ID, 0, stop)
	running, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = recorder.Run(running) }()
	if _, err := b.runs.Cancel(t.Context(), roster.Identity{Name: "ina"}, r.ID, "enough"); err != nil {
		t.Fatal(err)
	}
	<-ctx.Done()
	if !errors.Is(context.Cause(ctx), process.StoppedError{Reason: "enough", Cause: engine.ByPerson}) {
		t.Errorf("%v", context.Cause(ctx))
	}
}

func TestTwoRunsTakeTurnsOnASession(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		b, node := start(t, address), start(t, address) // two nodes of one database
		first, second := b.open(t), node.open(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		a := b.server().Begin(first.ID, 0, func(error) {})
		finished := make(chan error, 1)
		go func() { finished <- a.Run(ctx) }()
		if _, err := a.Lock(ctx, "amp:T-1"); err != nil {
			t.Fatal(err)
		}
		other := node.server().Begin(second.ID, 0, func(error) {})
		var over atomic.Bool
		got := make(chan error, 1)
		go func() {
			_, err := other.Lock(ctx, "amp:T-1")
			if !over.Load() {
				t.Error("two runs hold the session")
			}
			got <- err
		}()
		for range 3 { // the first is held for several tries of the second
			if o, err := b.runs.Beat(atOnce(), second.ID, run.Pulse{Thread: "amp:T-1"}); err != nil || o.Held {
				t.Errorf("%+v %v", o, err)
			}
		}
		over.Store(true)
		a.Event(end(), engine.Usage{})
		a.Close()
		if err := <-finished; err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	})
}

// atOnce is a context in which nothing is waited for.
func atOnce() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// BenchmarkEventToFollower is how long it takes from an event to its reader, over HTTP and
// the ledger: with one run, and with 50 that have ten events a second each.
func BenchmarkEventToFollower(b *testing.B) {
	for _, many := range []int{1, 50} {
		b.Run(fmt.Sprint(many), func(b *testing.B) {
			s := start(b, storetest.SQLite(b))
			var mu sync.Mutex
			var took []time.Duration
			var wg sync.WaitGroup
			b.ResetTimer()
			spent := used()
			for i := range many {
				n := (b.N + many - 1 - i) / many
				wg.Go(func() {
					var first, pace time.Duration
					if many > 1 { // they do not all begin at once
						first, pace = time.Duration(i)*tenth/time.Duration(many), tenth
					}
					all := s.stream(b, n, first, pace)
					mu.Lock()
					defer mu.Unlock()
					took = append(took, all...)
				})
			}
			wg.Wait()
			b.ReportMetric(float64(spent().Microseconds())/float64(b.N), "cpu-µs/op")
			testbed.ReportLatency(b, took)
		})
	}
}

const tenth = 100 * time.Millisecond

// stream reports events of one run, ten a second or as fast as they are read, and gives the
// time that each took.
func (b *box) stream(tb *testing.B, n int, first, pace time.Duration) (took []time.Duration) {
	r := b.open(tb)
	recorder := b.server().Begin(r.ID, 0, func(error) {})
	ctx, cancel := context.WithCancel(tb.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = recorder.Run(ctx) })
	got := make(chan time.Time, 1)
	wg.Go(func() {
		_ = b.runs.Follow(ctx, r.ID, 0, func([]run.Numbered) error { got <- time.Now(); return nil })
	})
	due := time.Now().Add(first)
	for i := range n {
		time.Sleep(time.Until(due))
		began := time.Now()
		recorder.Event(event(i), engine.Usage{})
		took = append(took, (<-got).Sub(began))
		due = began.Add(pace)
	}
	return took
}

// used gives the processor time that this process takes from now on.
func used() func() time.Duration {
	began := testbed.ProcessorTime()
	return func() time.Duration { return testbed.ProcessorTime() - began }
}

func TestMain(m *testing.M) {
	runtest.Main()
	supervise()
	os.Exit(m.Run())
}

// supervise is a process that watches a run of the CLI, when it is told to.
func supervise() {
	url, id, cli := os.Getenv("SIGNALBOX_TEST_URL"), os.Getenv("SIGNALBOX_TEST_ID"), os.Getenv("SIGNALBOX_TEST_COMMAND")
	if url == "" {
		return
	}
	amp, err := engine.Find("amp")
	if err != nil {
		panic(err)
	}
	ctx, stop := context.WithCancelCause(context.Background())
	recorder := record.Server{URL: func() (string, error) { return url, nil }, HTTP: record.NewHTTP()}.Begin(id, 0, stop)
	go func() { _ = recorder.Run(context.Background()) }()
	process.Run(ctx, process.Spec{
		ID: id, Engine: amp, Lock: recorder.Lock, Limits: process.DefaultLimits(),
		Job: engine.Job{Prompt: "go", Dir: os.TempDir(), Settings: engine.Settings{Command: cli}},
	}, recorder.Event)
	os.Exit(0)
}

// TestAKilledSupervisorLeavesOneCompletedAndNoLock: the agent is ended with it, the server
// completes the run, and another run may have the session.
func TestAKilledSupervisorLeavesOneCompletedAndNoLock(t *testing.T) {
	const lease = time.Second
	s := startWith(t, storetest.SQLite(t), lease)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r := s.open(t)
	log := filepath.Join(t.TempDir(), "log")
	cli := runtest.CLI{
		Stdout: []byte(`{"type":"system","subtype":"init","session_id":"T-1"}` + "\n"), Linger: time.Minute,
		Stubborn: true, Log: log,
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	supervisor := exec.CommandContext(t.Context(), self)
	supervisor.Env = append(os.Environ(), "SIGNALBOX_TEST_URL="+s.url, "SIGNALBOX_TEST_ID="+r.ID,
		"SIGNALBOX_TEST_COMMAND="+cli.Write(t))
	if err := supervisor.Start(); err != nil {
		t.Fatal(err)
	}
	take := func() bool { // for a new run, since one without signs of life is over soon
		o, err := s.runs.Beat(atOnce(), s.open(t).ID, run.Pulse{Thread: "amp:T-1"})
		if err != nil {
			t.Fatal(err)
		}
		return o.Held
	}
	var types []engine.Type
	err = s.runs.Follow(ctx, r.ID, 0, func(all []run.Numbered) error {
		for _, n := range all {
			var e engine.Event
			if err := json.Unmarshal(n.Event, &e); err != nil {
				return err
			}
			types = append(types, e.Type)
			if e.Type == engine.Started { // so the session is the run's
				_ = supervisor.Process.Kill()
				_ = supervisor.Wait()
				wg.Go(func() { _ = s.runs.Run(ctx) })
			} else if *e.OK || !strings.Contains(e.Error, "is gone") {
				t.Errorf("%s", n.Event)
			}
		}
		return nil
	})
	if err != nil || fmt.Sprint(types) != "[started completed]" {
		t.Fatalf("%v %v", types, err)
	}
	testbed.Until(t, "the session of a run that is over", take)
	var pid int
	if _, err := fmt.Sscanf(testbed.ReadAny(log), "begin %d", &pid); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "the agent's end", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}

// TestGatesThatEndWithTheirRunAreNotDecided: who watches a run hears of each gate that opens, and that it is decided only
// while the run goes on. While it waits there, the supervisor knows.
func TestGatesThatEndWithTheirRunAreNotDecided(t *testing.T) {
	orders := make(chan run.Orders, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case o := <-orders:
			_ = wire.Reply(w, http.StatusOK, o)
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	s := record.Server{URL: func() (string, error) { return server.URL, nil }, HTTP: record.NewHTTP()}
	recorder := s.Begin("run_1", 0, func(error) {})
	heard := make(chan []run.Awaited, 10)
	recorder.Awaited = func(all []run.Awaited) { heard <- all }
	done := make(chan error, 1)
	go func() { done <- recorder.Run(t.Context()) }()
	at := run.Awaited{Gate: "gate_1", Title: "make deploy"}
	mail := run.Awaited{Gate: "gate_2", Title: "a mail", Outlasts: true}
	for _, c := range []struct {
		awaited []run.Awaited
		asking  bool
	}{
		{[]run.Awaited{mail}, false}, {[]run.Awaited{at, mail}, true}, {[]run.Awaited{mail}, false}, {[]run.Awaited{at}, true},
	} {
		orders <- run.Orders{Held: true, Awaited: c.awaited}
		if got := testbed.Receive(t, "the gates", heard); len(got) != len(c.awaited) || recorder.Asking() != c.asking {
			t.Errorf("%+v: %+v, asking %t", c, got, recorder.Asking())
		}
	}
	orders <- run.Orders{Held: true, Ended: true}
	recorder.Close()
	if err := testbed.Receive(t, "the end", done); err != nil {
		t.Error(err)
	}
	if len(heard) > 0 {
		t.Errorf("with the run its gates were decided: %+v", <-heard)
	}
}
