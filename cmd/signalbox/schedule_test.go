package main

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// TestAScheduleStartsItsRunsWhenTheServerIsKilled sets one by the command line, moves the clock, and kills the server as
// soon as a time is due: each time has one run.
func TestAScheduleStartsItsRunsWhenTheServerIsKilled(t *testing.T) {
	t.Parallel()
	storetest.Each(t, func(t *testing.T, address string) {
		dir, folder := t.TempDir(), t.TempDir()
		// A session of its own: runs of one take turns on the whole machine.
		cli := runtest.CLI{Stdout: []byte(strings.Replace(runInit, runSession, "T-"+rand.Text(), 1) + runResult)}
		configure(t, dir, fmt.Sprintf("clock: {movable: true}\nruns:\n  folders: [%s]\n  amp: {command: %s}\n", folder, cli.Write(t)))
		database := []string{}
		if strings.HasPrefix(address, "postgres") {
			database = []string{"--db", address}
		}
		p := up(t, dir, database...)
		if code, out := run(t, dir, "runs", "schedule", "amp", "--cron", "daily", "--cwd", folder, "--", "tidy up"); code != 1 ||
			!strings.Contains(out, "five fields") {
			t.Errorf("%d %s", code, out)
		}
		out := mustRun(t, dir, "runs", "schedule", "amp", "--cron", "* * * * *", "--catch-up", "all", "--cwd", folder, "--mode", "read",
			"--budget-tokens", "100000", "--json", "--", "tidy up")
		if code, out := run(t, dir, "runs", "schedule", "amp", "--cron", "@daily", "--mode", "careful", "--", "x"); code != 2 ||
			!strings.Contains(out, "read, edit, full or supervised") {
			t.Errorf("%d %s", code, out)
		}
		var set struct{ ID string }
		if err := json.Unmarshal([]byte(out), &set); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		entries := func(kind string) (all []struct{ Body struct{ Time int64 } }) {
			var page struct {
				Entries []struct{ Body struct{ Time int64 } }
			}
			p.get("/ops/ledger?limit=1000&kind="+kind+"&subject="+set.ID, &page)
			return page.Entries
		}
		const rounds = 3
		for round := range rounds {
			var clock struct{ Now time.Time }
			p.get("/ops/clock", &clock)
			next, _ := json.Marshal(map[string]any{"now": clock.Now.Add(time.Minute)})
			if status, answer, err := p.call("PUT", "/ops/clock", string(next)); err != nil || status != 200 {
				t.Fatalf("%v %d %s", err, status, answer)
			}
			testbed.Until(t, "a time to be due", func() bool { return len(entries("schedule.due")) > round })
			p.kill()
			p = up(t, dir, database...)
		}
		var listed struct {
			Schedules []struct {
				ID      string
				LastRun string    `json:"last_run"`
				NextAt  time.Time `json:"next_at"`
			}
		}
		testbed.Until(t, "a run of each time", func() bool { return len(entries("schedule.started")) >= rounds })
		p.get("/runs/schedules", &listed)
		if len(listed.Schedules) != 1 || listed.Schedules[0].LastRun == "" {
			t.Fatalf("%+v", listed)
		}
		if out := mustRun(t, dir, "runs", "schedule", "ls"); !strings.Contains(out, set.ID) || !strings.Contains(out, "tidy up") ||
			!strings.Contains(out, listed.Schedules[0].LastRun) {
			t.Errorf("%s", out)
		}
		mustRun(t, dir, "runs", "schedule", "rm", set.ID)
		if out := mustRun(t, dir, "runs", "schedule", "ls"); !strings.Contains(out, "There are no schedules") {
			t.Errorf("%s", out)
		}
		if code, out := run(t, dir, "runs", "schedule", "rm", set.ID); code != 1 || !strings.Contains(out, "There is no schedule") {
			t.Errorf("%d %s", code, out)
		}
		var runs struct {
			Runs []struct{ Origin, Status, Prompt, Mode string }
		}
		testbed.Until(t, "all runs to be over", func() bool {
			p.get("/runs?limit=100", &runs)
			for _, r := range runs.Runs {
				if r.Status == "running" {
					return false
				}
			}
			return true
		})
		// Now that it is gone: a minute may have passed by itself.
		times := map[int64]bool{}
		for _, e := range entries("schedule.started") {
			if times[e.Body.Time] {
				t.Errorf("%s has two runs", time.UnixMicro(e.Body.Time))
			}
			times[e.Body.Time] = true
		}
		if len(runs.Runs) != len(times) {
			t.Errorf("%d runs of %d times", len(runs.Runs), len(times))
		}
		for _, r := range runs.Runs {
			if r.Origin != "schedule:"+set.ID || r.Status != "completed" || r.Prompt != "tidy up" || r.Mode != "read" {
				t.Errorf("%+v", r)
			}
		}
		p.kill()
		if out := mustRun(t, dir, append([]string{"ledger", "rebuild", "--check"}, database...)...); !strings.Contains(out,
			" 0 differences") {
			t.Errorf("%s", out)
		}
	})
}
