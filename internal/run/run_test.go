package run_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/price"
	"signalbox/internal/protocol"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

var operator = roster.Identity{ID: "operator_1", Kind: roster.HolderOperator, Name: "ina", Role: roster.Operator}

// node is a process that records runs.
type node struct {
	*ledgertest.Node
	runs   *run.Runs
	gates  *gate.Gates
	prices *price.Prices
	core   protocol.Core
	agent  string // the id of an agent, once addAgent has made one
}

func start(t testing.TB, address string, options ...func(*run.Options)) *node {
	t.Helper()
	base, core := runtest.Open(t, address)
	o := run.Options{}
	for _, option := range options {
		option(&o)
	}
	n := &node{base, run.New(core, o), core.Gates, core.Prices, core, ""}
	n.Run(n.prices.Run)
	n.Run(n.runs.Run)
	return n
}

func (n *node) open(r run.Request) run.Run {
	n.T.Helper()
	r.Recorded = true
	if r.Engine == "" {
		r.Engine = "amp"
	}
	if r.Prompt == "" {
		r.Prompt = "fix the tests"
	}
	opened, err := n.runs.Open(n.T.Context(), operator, r)
	if err != nil {
		n.T.Fatal(err)
	}
	return opened
}

const (
	started = `{"type":"started","engine":"amp","resume":{"engine":"amp","value":"T-1"},"title":"amp","meta":{"pid":7}}`
	acted   = `{"type":"action","engine":"amp","action":{"id":"a","kind":"command","title":"ls","detail":{}},` +
		`"phase":"started","ok":null,"message":null,"level":null}`
	completed = `{"type":"completed","engine":"amp","ok":true,"answer":"done","resume":{"engine":"amp",` +
		`"value":"T-1"},"error":null,"usage":null}`
)

func entries(tokens int64, events ...string) (all []run.Entry) {
	for _, e := range events {
		all = append(all,
			run.Entry{Event: wire.Raw(e), Usage: engine.Usage{Source: "amp", Model: "m", Tokens: engine.Tokens{Input: tokens}}})
	}
	return all
}

func (n *node) report(id string, from, tokens int64, events ...string) (run.Orders, error) {
	return n.runs.Report(n.T.Context(), operator, id, run.Report{From: from, Events: entries(tokens, events...)})
}

func (n *node) must(o run.Orders, err error) run.Orders {
	n.T.Helper()
	if err != nil {
		n.T.Fatal(err)
	}
	return o
}

func (n *node) events(id string, after int64) []run.Numbered {
	n.T.Helper()
	all, err := n.runs.Events(n.T.Context(), id, after)
	if err != nil {
		n.T.Fatal(err)
	}
	return all
}

func TestEventsAreRecordedOnceAndInOrder(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		r := n.open(run.Request{Dir: "/srv/repo", Model: "rush"})
		n.must(n.report(r.ID, 1, 5, started, acted))
		if o := n.must(n.report(r.ID, 1, 5, started, acted, acted)); o.Events != 3 || o.Ended {
			t.Errorf("a report that was half recorded: %+v", o)
		}
		if _, err := n.report(r.ID, 5, 5, acted); !fault.Is(err, fault.Conflict) {
			t.Errorf("a gap: %v", err)
		}
		if _, err := n.report(r.ID, 4, 5, completed, acted); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("after completed: %v", err)
		}
		for _, bad := range []string{
			`{}`, `[]`, `{"type":"started"}`, `{"type":"telemetry"}`,
			`{"type":"action","phase":7}`,
		} {
			if _, err := n.report(r.ID, 4, 5, bad); !fault.Is(err, fault.InvalidPayload) {
				t.Errorf("%s: %v", bad, err)
			}
		}
		if o := n.must(n.report(r.ID, 4, 9, completed)); o.Events != 4 || !o.Ended {
			t.Errorf("%+v", o)
		}
		if o := n.must(n.report(r.ID, 4, 9, completed)); o.Events != 4 || !o.Ended {
			t.Errorf("the last report again: %+v", o)
		}
		if _, err := n.report(r.ID, 5, 9, acted); !fault.Is(err, fault.Conflict) {
			t.Errorf("after the end: %v", err)
		}
		got := n.events(r.ID, 1)
		if len(got) != 3 || got[0].N != 2 || got[2].N != 4 || string(got[2].Event) != completed ||
			got[0].Usage.Tokens.Input != 5 {
			t.Errorf("%+v", got)
		}
		shown, err := n.runs.Get(t.Context(), r.ID)
		if err != nil || shown.Status != run.Done || shown.Resume != "T-1" || shown.Line != "`amp threads continue T-1`" ||
			shown.Tokens != 9 || shown.EndedAt == nil || shown.OpenedBy != "operator:ina" {
			t.Errorf("%v %+v", err, shown)
		}
		odd := n.open(run.Request{})
		n.must(n.runs.Report(t.Context(), operator, odd.ID, run.Report{From: 1, Events: []run.Entry{{
			Event: wire.Raw(strings.Replace(started, "T-1", `T-\u0000`, 1)),
			Usage: engine.Usage{Tokens: engine.Tokens{Input: -5, Output: 1 << 62}},
		}}}))
		if _, err := n.report("run_x", 1, 0, started); !fault.Is(err, fault.NotFound) {
			t.Errorf("a run that is not there: %v", err)
		}
		n.WantClean()
	})
}

func TestAFollowerSeesEverythingOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		r := n.open(run.Request{})
		n.must(n.report(r.ID, 1, 0, started))
		seen, done := make(chan int64, 1000), make(chan error, 1)
		go func() {
			done <- n.runs.Follow(t.Context(), r.ID, 0, func(all []run.Numbered) error {
				for _, e := range all {
					seen <- e.N
				}
				return nil
			})
		}()
		if got := <-seen; got != 1 {
			t.Errorf("first %d", got)
		}
		for i := range int64(300) {
			n.must(n.report(r.ID, i+2, 0, acted))
		}
		n.must(n.report(r.ID, 302, 0, completed))
		for want := int64(2); want <= 302; want++ {
			if got := <-seen; got != want {
				t.Fatalf("%d, want %d", got, want)
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestBudgetsStopRunsAndAreDurable(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		limits := func(o *run.Options) {
			o.Daily = run.Budget{Tokens: 1000, USD: 5}
		}
		n := start(t, address, limits)
		n.price("m", 1000) // 0.1 cent a token
		a := n.open(run.Request{Budget: run.Budget{Tokens: 300}})
		if o := n.must(n.report(a.ID, 1, 200, started, acted)); o.Stop != "" {
			t.Errorf("too early: %+v", o)
		}
		if o := n.must(n.report(a.ID, 3, 300, acted)); !strings.Contains(o.Stop,
			"the run has used 300 tokens, and its budget is 300") {
			t.Errorf("%+v", o)
		}
		n.must(n.report(a.ID, 4, 300, completed))
		b := n.open(run.Request{Budget: run.Budget{USD: 0.1}})
		if o := n.must(n.report(b.ID, 1, 100, started)); !strings.Contains(o.Stop, "the run has cost $0.1000") {
			t.Errorf("%+v", o)
		}
		n.Stop()

		n = start(t, address, limits)
		c := n.open(run.Request{})
		if o := n.must(n.report(c.ID, 1, 600, started)); !strings.Contains(o.Stop, "today's runs have used 1000 tokens") {
			t.Errorf("the day's total is not durable: %+v", o)
		}
		if _, err := n.runs.Open(t.Context(), operator,
			run.Request{Engine: "amp", Prompt: "x", Recorded: true}); !fault.Is(err, fault.Conflict) {
			t.Errorf("a run on a day that is used up: %v", err)
		}
		n.Set(24 * time.Hour)
		n.open(run.Request{})
		n.WantClean()
	})
}

func TestASessionIsHeldByOneRun(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		now, cancel := context.WithCancel(t.Context())
		cancel() // nothing waits
		beat := func(id string) run.Orders {
			t.Helper()
			o, err := n.runs.Beat(now, id, run.Pulse{Thread: "amp:T-1"})
			return n.must(o, err)
		}
		a, b := n.open(run.Request{}), n.open(run.Request{})
		if !beat(a.ID).Held || beat(b.ID).Held || !beat(a.ID).Held {
			t.Error("the session is not held by the first")
		}
		if o, err := n.runs.Beat(now, b.ID, run.Pulse{Thread: "amp:T-2"}); err != nil || !o.Held {
			t.Errorf("another session: %+v, %v", o, err)
		}
		n.Set(31 * time.Second) // a gives no sign of life
		if !beat(b.ID).Held || beat(a.ID).Held {
			t.Error("the session of a dead run is not free")
		}
		if _, err := n.runs.Beat(t.Context(), a.ID, run.Pulse{Thread: "T-1"}); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("a thread without an engine: %v", err)
		}
	})
}

func TestAnOrderToStopReachesTheSupervisor(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		r := n.open(run.Request{})
		orders := make(chan run.Orders, 1)
		go func() { o, _ := n.runs.Beat(t.Context(), r.ID, run.Pulse{}); orders <- o }()
		if _, err := n.runs.Cancel(t.Context(), operator, r.ID, ""); err != nil {
			t.Fatal(err)
		}
		if o := <-orders; o.Stop != "cancelled by ina" {
			t.Errorf("%+v", o)
		}
		n.must(n.report(r.ID, 1, 0, completed))
		if _, err := n.runs.Cancel(t.Context(), operator, r.ID, ""); !fault.Is(err, fault.Conflict) {
			t.Errorf("cancelled after the end: %v", err)
		}
	})
}

func TestARunWithoutItsSupervisorIsCompletedOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		r, other := n.open(run.Request{}), n.open(run.Request{})
		n.must(n.report(r.ID, 1, 7, started))
		n.must(n.report(other.ID, 1, 0, started))
		look := func() {
			t.Helper()
			if err := run.CompleteLost(n.runs, t.Context(), map[string]bool{}); err != nil {
				t.Fatal(err)
			}
		}
		look()
		if got := n.events(r.ID, 0); len(got) != 1 {
			t.Fatalf("it was given up at once: %d events", len(got))
		}
		n.Set(31 * time.Second)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		n.must(n.runs.Beat(over, other.ID, run.Pulse{})) // that one lives
		look()
		look()
		got := n.events(r.ID, 1)
		var e engine.Event
		if len(got) != 1 {
			t.Fatalf("%d events", len(got))
		}
		if err := json.Unmarshal(got[0].Event, &e); err != nil || e.Type != engine.Completed || *e.OK ||
			!strings.Contains(e.Error, "is gone") || e.Resume == nil || e.Resume.Value != "T-1" {
			t.Errorf("%v %s", err, got[0].Event)
		}
		if alive := n.events(other.ID, 1); len(alive) != 0 {
			t.Errorf("a run that lives was completed")
		}
		n.must(n.report(r.ID, 2, 0, completed)) // its supervisor comes back, and nothing changes
		if got := n.events(r.ID, 0); len(got) != 2 {
			t.Errorf("%d events", len(got))
		}
		if r, _ = n.runs.Get(t.Context(), r.ID); r.Tokens != 7 || r.CostUSD == 0 {
			t.Errorf("it has lost what it used: %+v", r)
		}
		n.WantClean()
	})
}

func TestWorkspacesAreWalls(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	r := n.open(run.Request{})
	other := wire.WithScope(t.Context(), "other")
	for what, err := range map[string]error{
		"get":    second(n.runs.Get(other, r.ID)),
		"report": second(n.runs.Report(other, operator, r.ID, run.Report{From: 1, Events: entries(0, started)})),
		"cancel": second(n.runs.Cancel(other, operator, r.ID, "")),
		"beat":   second(n.runs.Beat(other, r.ID, run.Pulse{})),
		"follow": n.runs.Follow(other, r.ID, 0, nil),
	} {
		if !fault.Is(err, fault.NotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
	page, err := n.runs.List(other, run.Filter{}, "", 10)
	if err != nil || len(page.Runs) != 0 {
		t.Errorf("%v %+v", err, page)
	}
}

func second[T any](_ T, err error) error { return err }

func TestListsArePaged(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		for range 5 {
			n.open(run.Request{})
		}
		page, err := n.runs.List(t.Context(), run.Filter{Status: "running"}, "", 3)
		if err != nil || len(page.Runs) != 3 || page.Next == "" {
			t.Fatalf("%v %+v", err, page)
		}
		rest, err := n.runs.List(t.Context(), run.Filter{}, page.Runs[2].ID, 3)
		if err != nil || len(rest.Runs) != 2 || rest.Next != "" {
			t.Fatalf("%v %+v", err, rest)
		}
	})
}

// TestTheServerStartsRunsOnlyWhereItMay also follows links.
func TestTheServerStartsRunsOnlyWhereItMay(t *testing.T) {
	allowed, outside := t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(allowed, "link")); err != nil {
		t.Fatal(err)
	}
	inside := filepath.Join(allowed, "repo")
	if err := os.Mkdir(inside, 0o700); err != nil {
		t.Fatal(err)
	}
	begun := 0
	n := start(t, storetest.SQLite(t), func(o *run.Options) {
		o.Folders, o.Supervise = []string{allowed}, func(string) error { begun++; return nil }
	})
	budget := run.Budget{Tokens: 1000}
	for _, c := range []struct {
		name string
		in   run.Request
		code fault.Code
	}{
		{"outside", run.Request{Dir: outside, Budget: budget}, fault.Forbidden},
		{"by a link", run.Request{Dir: filepath.Join(allowed, "link"), Budget: budget}, fault.Forbidden},
		{"by dots", run.Request{Dir: inside + "/../..", Budget: budget}, fault.Forbidden},
		{"a sibling with the same beginning", run.Request{Dir: allowed + "2", Budget: budget}, fault.InvalidPayload},
		{"nowhere", run.Request{Budget: budget}, fault.InvalidPayload},
		{"a relative folder", run.Request{Dir: "repo", Budget: budget}, fault.InvalidPayload},
		{"without a budget", run.Request{Dir: inside}, fault.InvalidPayload},
		{"an unknown engine", run.Request{Engine: "hal", Dir: inside, Budget: budget}, fault.InvalidRequest},
		{"a mode that there is not", run.Request{Dir: inside, Budget: budget, Mode: "careful"}, fault.InvalidPayload},
		{"two modes", run.Request{Dir: inside, Budget: budget, Mode: engine.Read, Supervised: true}, fault.InvalidPayload},
		{"the CLI's own settings", run.Request{Dir: inside, Budget: budget, Mode: engine.Own}, fault.InvalidPayload},
		{
			"a session of another engine",
			run.Request{Dir: inside, Budget: budget, Resume: "`codex resume 1`"},
			fault.InvalidRequest,
		},
		{"a negative budget", run.Request{Dir: inside, Budget: run.Budget{Tokens: -1}}, fault.InvalidPayload},
	} {
		if c.in.Engine == "" {
			c.in.Engine = "amp"
		}
		c.in.Prompt = "go"
		before, _ := n.Ledger.Head(t.Context())
		if _, err := n.runs.Open(t.Context(), operator, c.in); !fault.Is(err, c.code) {
			t.Errorf("%s: %v", c.name, err)
		}
		if after, _ := n.Ledger.Head(t.Context()); after != before || begun != 0 {
			t.Errorf("%s: something was recorded or begun", c.name)
		}
	}
	r, err := n.runs.Open(t.Context(), operator,
		run.Request{Engine: "amp", Prompt: "go", Dir: inside, Budget: budget, Resume: "see\n`amp threads continue T-7`"})
	if err != nil || begun != 1 || !r.Launched || r.Resume != "T-7" {
		t.Errorf("%v, %d begun, %+v", err, begun, r)
	}
	nowhere := start(t, storetest.SQLite(t))
	if _, err := nowhere.runs.Open(t.Context(), operator,
		run.Request{Engine: "amp", Prompt: "go", Dir: inside, Budget: budget}); !fault.Is(err, fault.Forbidden) {
		t.Errorf("without folders: %v", err)
	}
}

func TestARunThatCannotBeStartedIsCompleted(t *testing.T) {
	dir := t.TempDir()
	n := start(t, storetest.SQLite(t), func(o *run.Options) {
		o.Folders, o.Supervise = []string{dir}, func(string) error { return fmt.Errorf("no") }
	})
	if _, err := n.runs.Open(t.Context(), operator,
		run.Request{Engine: "amp", Prompt: "go", Dir: dir, Budget: run.Budget{Tokens: 1}}); err == nil {
		t.Error("no error")
	}
	page, err := n.runs.List(t.Context(), run.Filter{Status: "failed"}, "", 10)
	if err != nil || len(page.Runs) != 1 || page.Runs[0].Events != 1 {
		t.Errorf("%v %+v", err, page)
	}
}

// A server that is killed when it is about to start a supervisor leaves a run that nobody watches. It is started by the
// next server, and one supervisor has it, however many are started.
func TestARunThatNoSupervisorHasTakenIsStartedAfterAll(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		dir, begun := t.TempDir(), map[string]int{}
		n := start(t, address, func(o *run.Options) {
			o.Folders, o.Supervise = []string{dir}, func(id string) error { begun[id]++; return nil }
		})
		open := func() string {
			r, err := n.runs.Open(t.Context(), operator,
				run.Request{Engine: "amp", Prompt: "go", Dir: dir, Budget: run.Budget{Tokens: 1}})
			n.Must(err)
			return r.ID
		}
		take := func(id, supervisor string) error {
			_, err := n.runs.Wait(t.Context(), id, run.Pulse{Supervisor: supervisor}, 0)
			return err
		}
		lost, taken, recorded := open(), open(), n.open(run.Request{}).ID
		n.Must(take(taken, "one"))
		n.Must(take(taken, "one")) // whose answer was lost
		if err := take(taken, "two"); !fault.Is(err, fault.Conflict) {
			t.Errorf("two supervisors: %v", err)
		}
		again := map[string]bool{}
		n.Move(time.Hour)
		n.Must(run.CompleteLost(n.runs, t.Context(), again))
		if begun[lost] != 2 || begun[taken] != 1 || begun[recorded] != 0 {
			t.Errorf("%v", begun)
		}
		for id, want := range map[string]run.Status{lost: run.Running, taken: run.Failed, recorded: run.Failed} {
			if r, err := n.runs.Get(t.Context(), id); err != nil || r.Status != want {
				t.Errorf("%s should be %s: %v %+v", id, want, err, r)
			}
		}
		n.Move(time.Hour) // nobody has taken it now either
		n.Must(run.CompleteLost(n.runs, t.Context(), again))
		if r, err := n.runs.Get(t.Context(), lost); err != nil || r.Status != run.Failed || begun[lost] != 2 {
			t.Errorf("%v %+v", err, r)
		}
	})
}

// A supervisor hears at which gate of its run a person is awaited, and when that is over.
func TestASupervisorHearsWhereAPersonIsAwaited(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		r, other := n.open(run.Request{}), n.open(run.Request{})
		n.must(n.report(r.ID, 1, 0, started))
		heard := make(chan run.Orders, 1)
		go func() { // it waits, and is woken by the gate
			o, err := n.runs.Wait(t.Context(), r.ID, run.Pulse{Awaited: true}, time.Minute)
			if err != nil {
				t.Error(err)
			}
			heard <- o
		}()
		id := gatetest.Open(n.Node, "default", gate.Opening{
			Agent: "agent_1", AgentName: "coder", Requester: "agent:agent_1", Shown: gate.Shown{Title: "make deploy"},
			Origin: gate.Origin{Protocol: "harness", Reference: "s", Run: r.ID},
		})
		o := testbed.Receive(t, "the gate", heard)
		if len(o.Awaited) != 1 || o.Awaited[0].Gate != id || o.Awaited[0].Title != "make deploy" || o.Awaited[0].Agent != "coder" ||
			!strings.HasSuffix(o.Awaited[0].Link, "/ui/inbox/"+id) {
			t.Fatalf("%+v", o)
		}
		if _, err := n.gates.Vote(t.Context(), operator, id, gate.Ballot{Note: "no"}); err != nil {
			t.Fatal(err)
		}
		o, err := n.runs.Wait(t.Context(), r.ID, run.Pulse{Awaited: true, Known: []string{id}}, time.Minute)
		if err != nil || len(o.Awaited) != 0 {
			t.Errorf("%v %+v", err, o)
		}
		if o, err := n.runs.Wait(t.Context(), other.ID, run.Pulse{Awaited: true}, 0); err != nil || len(o.Awaited) != 0 {
			t.Errorf("%v %+v", err, o)
		}
	})
}

// A gate of a run that has ended is withdrawn, however the run has ended, and those of others wait.
func TestGatesOfAnEndedRunAreWithdrawn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		done, lost, alive := n.open(run.Request{}), n.open(run.Request{}), n.open(run.Request{})
		gates := map[string]string{}
		for name, workspaceAndRun := range map[string][2]string{
			"done": {"default", done.ID}, "lost": {"default", lost.ID}, "alive": {"default", alive.ID},
			"none": {"default", ""}, "elsewhere": {"other", done.ID}, // whose agent only says so
		} {
			gates[name] = gatetest.Open(n.Node, workspaceAndRun[0], gate.Opening{
				Agent: "agent_1", AgentName: "coder", Requester: "agent:agent_1", Shown: gate.Shown{Title: name},
				Origin: gate.Origin{Protocol: "harness", Reference: "s", Run: workspaceAndRun[1]},
			})
		}
		want := func(name string, cause gate.Cause) {
			t.Helper()
			if g := gatetest.Get(n.Node, n.gates, gates[name]); g.Cause != cause {
				t.Errorf("the gate of %s ended by %q, want %q: %+v", name, g.Cause, cause, g)
			}
		}
		n.must(n.report(done.ID, 1, 0, started, acted))
		want("done", "")
		n.must(n.report(done.ID, 3, 0, completed))
		n.must(n.report(lost.ID, 1, 0, started))
		n.must(n.report(alive.ID, 1, 0, started))
		n.Set(31 * time.Second)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		n.must(n.runs.Beat(over, alive.ID, run.Pulse{}))
		if err := run.CompleteLost(n.runs, t.Context(), map[string]bool{}); err != nil {
			t.Fatal(err)
		}
		for name, cause := range map[string]gate.Cause{
			"done": gate.ByEnd, "lost": gate.ByEnd, "alive": "", "none": "", "elsewhere": "",
		} {
			want(name, cause)
		}
		_, err := n.gates.Vote(t.Context(), operator, gates["done"], gate.Ballot{Approve: true})
		if fault.From(err).Code != fault.AlreadyResolved {
			t.Errorf("a withdrawn gate was decided: %v", err)
		}
		n.WantClean()
	})
}
