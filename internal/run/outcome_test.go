package run_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/store/storetest"
)

// ended is a completed event that is not ok, with more members.
func ended(more string) string {
	return `{"type":"completed","engine":"amp","ok":false,"answer":"","resume":null,"error":"why","usage":null` + more + `}`
}

// TestEachOutcomeIsAStateOfItsOwn in what is shown, listed and counted, whether the supervisor says so or an order does.
func TestEachOutcomeIsAStateOfItsOwn(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		for _, c := range []struct {
			what, last string
			order      bool // a person has it cancelled first
			budget     int64
			status     run.Status
			cause      engine.Cause
		}{
			{"well", completed, false, 0, run.Done, ""},
			{"well after an order", completed, true, 0, run.Done, ""},
			{"badly", ended(""), false, 0, run.Failed, ""},
			{"cancelled at its terminal", ended(`,"outcome":"cancelled","cause":"person"`), false, 0, run.Cancelled, engine.ByPerson},
			{"by its budget", ended(`,"outcome":"stopped","cause":"budget"`), false, 0, run.Stopped, engine.ByBudget},
			{"by time", ended(`,"outcome":"stopped","cause":"time"`), true, 0, run.Stopped, engine.ByTime},
			{"by policy", ended(`,"outcome":"stopped","cause":"policy"`), false, 0, run.Stopped, engine.ByPolicy},
			{"after an order, by a supervisor that does not say why", ended(""), true, 0, run.Cancelled, engine.ByPerson},
			{"after the budget, by one that does not say why", ended(""), false, 5, run.Stopped, engine.ByBudget},
		} {
			r := n.open(run.Request{Budget: run.Budget{Tokens: c.budget}})
			o := n.must(n.report(r.ID, 1, 9, started))
			if c.order {
				if _, err := n.runs.Cancel(t.Context(), operator, r.ID, "enough"); err != nil {
					t.Fatal(err)
				}
				o = n.must(n.report(r.ID, 1, 9, started))
			}
			if want := map[bool]engine.Cause{c.order: engine.ByPerson, c.budget > 0: engine.ByBudget}[true]; o.Cause != want {
				t.Errorf("%s: the order is by %q, want %q", c.what, o.Cause, want)
			}
			n.must(n.report(r.ID, 2, 9, c.last))
			if r, err := n.runs.Get(t.Context(), r.ID); err != nil || r.Status != c.status || r.Cause != c.cause {
				t.Errorf("%s: %v %s by %q", c.what, err, r.Status, r.Cause)
			}
		}
		for status, want := range map[run.Status]int{run.Done: 2, run.Failed: 1, run.Cancelled: 2, run.Stopped: 4} {
			page, err := n.runs.List(t.Context(), run.Filter{Status: string(status)}, "", 100)
			if err != nil || len(page.Runs) != want {
				t.Errorf("%d runs are %s, want %d (%v)", len(page.Runs), status, want, err)
			}
			counted := map[run.Status]int64{}
			for _, e := range n.Entries("run.completed") {
				all, err := run.Counters()["run.completed"](&e)
				if err != nil {
					t.Fatal(err)
				}
				for _, c := range all {
					counted[run.Done] += c.Completed
					counted[run.Failed] += c.Failed
					counted[run.Cancelled] += c.Cancelled
					counted[run.Stopped] += c.Stopped
				}
			}
			if counted[status] != int64(want) {
				t.Errorf("%d runs are counted as %s, want %d", counted[status], status, want)
			}
		}
		r := n.open(run.Request{})
		n.must(n.report(r.ID, 1, 0, started))
		for _, bad := range []string{
			`,"outcome":"cancelled"`, `,"cause":"person"`, `,"outcome":"stopped","cause":"person"`, `,"outcome":"stopped","cause":"whim"`,
			`,"outcome":"failed"`, `,"cause":"whim"`,
		} {
			if _, err := n.report(r.ID, 2, 0, ended(bad)); !fault.Is(err, fault.InvalidPayload) {
				t.Errorf("%s: %v", bad, err)
			}
		}
		well := strings.Replace(ended(`,"outcome":"stopped","cause":"time"`), `"ok":false`, `"ok":true`, 1)
		if _, err := n.report(r.ID, 2, 0, well); !fault.Is(err, fault.InvalidPayload) {
			t.Errorf("a success that was stopped: %v", err)
		}
		if _, err := n.runs.List(t.Context(), run.Filter{Status: "done"}, "", 1); !fault.Is(err, fault.InvalidRequest) {
			t.Errorf("a status of version 0.1: %v", err)
		}
		n.WantClean()
	})
}

// TestRunsOfVersion01AreRead: their entries say done, and a cancelled one is failed there.
func TestRunsOfVersion01AreRead(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		for was, want := range map[string]run.Status{"done": run.Done, "failed": run.Failed} {
			r := n.open(run.Request{})
			err := n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
				for kind, body := range map[string]any{
					"run.stopped": map[string]any{"reason": "enough"},
					"run.completed": map[string]any{
						"n": 1, "event": map[string]any{"type": "completed"}, "usage": map[string]any{"source": "amp"},
						"spent": map[string]any{"tokens": 0, "nano_usd": 0}, "session": "", "status": was,
					},
				} {
					tx.Append(ledger.Event{Workspace: "default", Kind: kind, Actor: "system", Subject: r.ID, Trace: r.ID, Body: body})
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			got, err := n.runs.Get(t.Context(), r.ID)
			if err != nil || got.Status != want || got.Cause != "" || got.Stop != "enough" {
				t.Errorf("%s: %v %+v", was, err, got)
			}
			if _, err := n.runs.Cancel(t.Context(), operator, r.ID, ""); !fault.Is(err, fault.Conflict) {
				t.Errorf("it is over: %v", err)
			}
		}
		n.WantClean()
	})
}

// TestARunThatIsLostAfterAnOrderIsCancelled, and its event says the same.
func TestARunThatIsLostAfterAnOrderIsCancelled(t *testing.T) {
	n := start(t, storetest.SQLite(t))
	r := n.open(run.Request{})
	n.must(n.report(r.ID, 1, 0, started))
	if _, err := n.runs.Cancel(t.Context(), operator, r.ID, "enough"); err != nil {
		t.Fatal(err)
	}
	n.Set(31e9)
	if err := run.CompleteLost(n.runs, t.Context(), map[string]bool{}); err != nil {
		t.Fatal(err)
	}
	got, err := n.runs.Get(t.Context(), r.ID)
	last := n.events(r.ID, 1)
	if err != nil || got.Status != run.Cancelled || len(last) != 1 ||
		!strings.Contains(string(last[0].Event), `"outcome":"cancelled","cause":"person"`) {
		t.Errorf("%v %+v %s", err, got, fmt.Sprint(last))
	}
}

// TestARunThatHasJustBegunIsNotLost before its supervisor could give a sign of life.
func TestARunThatHasJustBegunIsNotLost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		r := n.open(run.Request{})
		for ahead, want := range []run.Status{run.Running, run.Failed} {
			n.Move(time.Duration(ahead) * 31 * time.Second)
			if err := run.CompleteLost(n.runs, t.Context(), map[string]bool{}); err != nil {
				t.Fatal(err)
			}
			if got, err := n.runs.Get(t.Context(), r.ID); err != nil || got.Status != want {
				t.Errorf("%v %s, which should be %s", err, got.Status, want)
			}
		}
	})
}

// TestASilentRunIsShownAsOne until it says something, and its limits are recorded.
func TestASilentRunIsShownAsOne(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address)
		limits := run.Limits{Start: 90, Idle: 1.5}
		r := n.open(run.Request{Limits: limits})
		silent := `{"type":"action","engine":"amp","action":{"id":"signalbox.silent.1","kind":"warning","title":"silent","detail":{}},` +
			`"phase":"started","ok":null,"message":null,"level":"warning"}`
		for i, c := range []struct {
			event  string
			silent bool
			words  string
		}{
			{started, false, "running"},
			{silent, true, "running (silent)"},
			{acted, false, "running"},
			{silent, true, "running (silent)"},
			{completed, false, "completed"},
		} {
			n.must(n.report(r.ID, int64(i+1), 0, c.event))
			got, err := n.runs.Get(t.Context(), r.ID)
			if err != nil || (got.SilentAt != nil) != c.silent || got.Outcome() != c.words || got.Limits != limits {
				t.Errorf("after %s: %v %s %+v", c.event, err, got.Outcome(), got)
			}
		}
		for _, bad := range []run.Limits{{Start: -1}, {Idle: 1e12}, {Total: -0.1}} {
			_, err := n.runs.Open(t.Context(), operator, run.Request{Engine: "amp", Prompt: "go", Recorded: true, Limits: bad})
			if !fault.Is(err, fault.InvalidPayload) {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		n.WantClean()
	})
}
