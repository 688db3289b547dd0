package schedule_test

import (
	"strings"
	"testing"
	"time"

	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/runtest"
	"signalbox/internal/run/schedule"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// node is a server with schedules.
type node struct {
	*ledgertest.Node
	schedules *schedule.Schedules
	runs      *run.Runs
	ann       roster.Identity
	people    *roster.Roster
}

// open starts a node whose clock is at ten past nine in the morning of a Wednesday, and so much later. What is due there
// is recorded, and nothing starts it.
func open(t *testing.T, address, folder string, later time.Duration) *node {
	t.Helper()
	base, core := runtest.Open(t, address, ledgertest.Part{Migrations: schedule.Migrations, Projection: schedule.Projection()})
	base.Set(time.Until(time.Date(2026, 11, 18, 9, 10, 0, 0, time.UTC).Add(later)))
	core.Now = base.Now
	n := &node{Node: base, people: core.Roster}
	n.runs = run.New(core, run.Options{Folders: []string{folder}, Supervise: func(string) error { return nil }, Lease: 1000 * time.Hour})
	n.schedules = schedule.New(core, n.runs)
	timers := clock.New(base.DB, base.Ledger, base.Now, core.Log, n.schedules.Timers())
	base.Run()
	base.Must(n.people.Bootstrap(t.Context()))
	_, _, _ = n.people.AddOperator(t.Context(), roster.Identity{Role: roster.Admin}, "ann", "operator", "") // there on a second start
	var err error
	n.ann, err = n.people.OperatorByName(t.Context(), "ann")
	base.Must(err)
	base.Run(timers.Run)
	return n
}

// start starts a node that starts runs, too.
func start(t *testing.T, address, folder string, later time.Duration) *node {
	t.Helper()
	n := open(t, address, folder, later)
	n.Run(n.schedules.Run)
	return n
}

// set sets a schedule.
func (n *node) set(folder, cron string, rule schedule.CatchUp) schedule.Schedule {
	n.T.Helper()
	s, err := n.schedules.Set(n.T.Context(), n.ann, schedule.Request{
		Cron: cron, CatchUp: rule, Run: run.Request{Engine: "claude", Prompt: "tidy up", Dir: folder, Budget: run.Budget{USD: 1}},
	})
	n.Must(err)
	return s
}

// count is how many runs a schedule has started.
func (n *node) count(id string) (started int) {
	n.T.Helper()
	page, err := n.runs.List(n.T.Context(), run.Filter{}, "", 1000)
	n.Must(err)
	for _, r := range page.Runs {
		if r.Origin == "schedule:"+id {
			started++
		}
	}
	return started
}

// settled waits until the time of a schedule is after now, and nothing that was due is left.
func (n *node) settled(id string) schedule.Schedule {
	n.T.Helper()
	var found schedule.Schedule
	testbed.Until(n.T, "what is due", func() bool {
		var err error
		found, err = n.schedules.Get(n.T.Context(), id)
		n.Must(err)
		// In this order: what is due is there once the time has moved on.
		if !found.NextAt.After(n.Now()) || n.Count("SELECT count(*) FROM schedule_due") > 0 {
			return false
		}
		found, err = n.schedules.Get(n.T.Context(), id)
		n.Must(err)
		return true
	})
	return found
}

func TestARunStartsAtItsTimes(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		folder := t.TempDir()
		n := start(t, address, folder, 0)
		s := n.set(folder, "*/15 * * * *", "")
		if s.NextAt.Format("15:04") != "09:15" || s.SetBy != "operator:ann" || s.CatchUp != schedule.Skip || s.Zone != "UTC" {
			t.Fatalf("%+v", s)
		}
		n.Move(4 * time.Minute)
		if n.count(s.ID) != 0 {
			t.Error("it was started before its time")
		}
		n.Move(time.Minute + time.Second)
		testbed.Until(t, "the run", func() bool { return n.count(s.ID) == 1 })
		got := n.settled(s.ID)
		r, err := n.runs.Get(t.Context(), got.LastRun)
		if err != nil || r.Prompt != "tidy up" || r.Budget.USD != 1 || r.OpenedBy != "operator:ann" || r.Dir == "" ||
			got.LastAt.Format("15:04") != "09:15" || got.NextAt.Format("15:04") != "09:30" {
			t.Errorf("%v %+v %+v", err, r, got)
		}
		other := roster.Identity{ID: n.ann.ID, Name: "x", Role: roster.Operator, Workspace: "elsewhere"}
		confined := wire.WithScope(t.Context(), "elsewhere")
		if err := n.schedules.Remove(confined, other, s.ID); !fault.Is(err, fault.NotFound) {
			t.Errorf("%v", err)
		}
		if all, err := n.schedules.List(confined); err != nil || len(all.Schedules) != 0 {
			t.Errorf("%v %+v", err, all)
		}
		n.Must(n.schedules.Remove(t.Context(), n.ann, s.ID))
		n.Move(time.Hour)
		probe := n.set(folder, "*/15 * * * *", "")
		n.Move(15 * time.Minute)
		testbed.Until(t, "the other", func() bool { return n.count(probe.ID) == 1 })
		if n.count(s.ID) != 1 {
			t.Error("a schedule that was removed started a run")
		}
		n.Stop()
		n.WantClean()
	})
}

func TestMissedTimesFollowTheRule(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		folder := t.TempDir()
		n := start(t, address, folder, 0)
		ids := map[schedule.CatchUp]string{}
		for _, rule := range []schedule.CatchUp{schedule.Skip, schedule.Once, schedule.All} {
			ids[rule] = n.set(folder, "0 * * * *", rule).ID
		}
		n.Stop()
		n = start(t, address, folder, 5*time.Hour) // ten past two: five were missed
		for rule, want := range map[schedule.CatchUp]int{schedule.Skip: 0, schedule.Once: 1, schedule.All: 5} {
			s := n.settled(ids[rule])
			if got := n.count(s.ID); got != want || s.NextAt.Format("15:04") != "15:00" {
				t.Errorf("%s: %d runs, want %d; next %s", rule, got, want, s.NextAt)
			}
		}
		n.Stop()
		n = start(t, address, folder, 5*time.Hour+50*time.Minute+10*time.Second) // on time, just
		for rule, want := range map[schedule.CatchUp]int{schedule.Skip: 1, schedule.Once: 2, schedule.All: 6} {
			testbed.Until(t, string(rule), func() bool { n.settled(ids[rule]); return n.count(ids[rule]) == want })
		}
		n.Stop()
		n.WantClean()
	})
}

// Of two nodes one starts the run, also if one is stopped at that moment.
func TestTwoNodesStartARunOnce(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		if !strings.HasPrefix(address, "postgres") {
			return // one node at a time has such a database
		}
		folder := t.TempDir()
		first, second := start(t, address, folder, 0), start(t, address, folder, 0)
		s := first.set(folder, "* * * * *", schedule.All)
		const minutes = 20
		for i := range minutes {
			for _, n := range []*node{first, second} {
				n.Move(time.Minute)
			}
			if i == minutes/2 {
				first.Stop()
				first = start(t, address, folder, time.Duration(i+1)*time.Minute)
			}
		}
		due := func() int { return first.Count("SELECT count(*) FROM schedule_due") }
		testbed.Until(t, "all runs", func() bool {
			got, err := second.schedules.Get(t.Context(), s.ID)
			second.Must(err)
			return got.NextAt.After(second.Now()) && due() == 0
		})
		entries := second.Entries("schedule.started")
		times := map[int64]bool{}
		for i := range entries {
			var b struct {
				Time int64  `json:"time"`
				Run  string `json:"run"`
			}
			second.Must(entries[i].Decode(&b))
			if times[b.Time] {
				t.Errorf("%s started two runs", time.UnixMicro(b.Time))
			}
			times[b.Time] = true
		}
		if got := second.count(s.ID); got != len(times) || got < minutes {
			t.Errorf("%d runs of %d times", got, len(times))
		}
	})
}

// What was due when a node was killed is started by the next one, once, and is in a rebuild meanwhile.
func TestATimeThatIsDueIsNotLost(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		folder := t.TempDir()
		n := open(t, address, folder, 0)
		s := n.set(folder, "*/15 * * * *", "")
		refused := n.set(folder, "*/5 * * * *", schedule.Once)
		n.Move(5*time.Minute + time.Second)
		testbed.Until(t, "both to be due", func() bool { return n.Count("SELECT count(*) FROM schedule_due") == 2 })
		n.WantClean("schedule", "schedule_due", "timer")
		n.Must(n.schedules.Remove(t.Context(), n.ann, refused.ID)) // what is due goes with it
		n.Stop()
		if n.count(s.ID) != 0 {
			t.Error("it was started")
		}
		for range 2 { // the second finds that it was started
			n = start(t, address, folder, 6*time.Minute)
			if got := n.settled(s.ID); n.count(s.ID) != 1 || got.LastAt.Format("15:04") != "09:15" || got.LastRun == "" {
				t.Errorf("%d runs, %+v", n.count(s.ID), got)
			}
			n.Stop()
		}
		if n.count(refused.ID) != 0 {
			t.Error("a schedule that was removed started a run")
		}
		n.WantClean("schedule")
	})
}

func TestAScheduleIsCheckedWhenItIsSetAndWhenItIsDue(t *testing.T) {
	folder := t.TempDir()
	n := start(t, storetest.SQLite(t), folder, 0)
	good := schedule.Request{Cron: "* * * * *", Run: run.Request{Engine: "claude", Prompt: "x", Dir: folder, Budget: run.Budget{USD: 1}}}
	for says, change := range map[string]func(*schedule.Request){
		"five fields":             func(r *schedule.Request) { r.Cron = "daily" },
		"time zone":               func(r *schedule.Request) { r.Zone = "Mars" },
		"skip, once or all":       func(r *schedule.Request) { r.CatchUp = "never" },
		"how much the run may":    func(r *schedule.Request) { r.Run.Budget = run.Budget{} },
		"an existing folder":      func(r *schedule.Request) { r.Run.Dir = "/nowhere" },
		"may not work in":         func(r *schedule.Request) { r.Run.Dir = "/" },
		"leave out resume":        func(r *schedule.Request) { r.Run.Resume = "3f0c" },
		"leave out recorded":      func(r *schedule.Request) { r.Run.Recorded = true },
		"cannot be held to":       func(r *schedule.Request) { r.Run.Engine = "gemini" },
		"in 1 to":                 func(r *schedule.Request) { r.Run.Prompt = "" },
		"leave out delegation":    func(r *schedule.Request) { r.Run.Delegation = "hof_x" },
		"There is no user \"me\"": func(r *schedule.Request) { r.Run.User = "me" },
	} {
		in, before := good, n.Head()
		change(&in)
		if _, err := n.schedules.Set(t.Context(), n.ann, in); err == nil || !strings.Contains(err.Error(), says) || n.Head() != before {
			t.Errorf("%s: %v", says, err)
		}
	}
	if _, err := n.schedules.Set(t.Context(), roster.Identity{Kind: roster.HolderAgent, ID: "agent_1"}, good); !fault.Is(err, fault.Forbidden) {
		t.Errorf("an agent set one: %v", err)
	}
	s, err := n.schedules.Set(t.Context(), n.ann, good)
	n.Must(err)
	n.Must(n.people.RemoveOperator(t.Context(), roster.Identity{Role: roster.Admin}, "ann"))
	n.Move(time.Minute)
	testbed.Until(t, "the refusal", func() bool {
		got, err := n.schedules.Get(t.Context(), s.ID)
		n.Must(err)
		return strings.Contains(got.LastReason, "There is no operator")
	})
	if n.count(s.ID) != 0 {
		t.Error("the schedule of somebody who is gone started a run")
	}
}
