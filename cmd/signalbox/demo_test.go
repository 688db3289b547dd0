package main

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"signalbox/internal/testbed"
)

// TestTheDemoFillsEveryPage plays it twice against a server: the second time it finds its
// agents there.
func TestTheDemoFillsEveryPage(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	for range 2 {
		out := mustRun(t, p.dir, "demo", "--once")
		if !strings.Contains(out, "gates wait") {
			t.Errorf("it does not say what waits:\n%s", out)
		}
	}
	p.wantStory(t)
	p.wantPages(t)
}

// wantStory looks at what the demo has left, through the API.
func (p *process) wantStory(t *testing.T) {
	t.Helper()
	var gates struct {
		Gates []struct{ Origin struct{ Protocol string } }
	}
	p.get("/ops/gates?status=pending&limit=100", &gates)
	from := map[string]int{}
	for _, g := range gates.Gates {
		from[g.Origin.Protocol]++
	}
	if len(from) < 4 {
		t.Errorf("gates wait from %v: want signals, AHP, mail and tasks", from)
	}
	var tasks struct{ Counts map[string]int }
	p.get("/amp/tasks", &tasks)
	for _, status := range []string{"reviewing", "executing", "suspended", "completed"} {
		if tasks.Counts[status] == 0 {
			t.Errorf("no task is %s: %v", status, tasks.Counts)
		}
	}
	var runs struct{ Runs []struct{ Status string } }
	p.get("/runs", &runs)
	states := map[string]int{}
	for _, r := range runs.Runs {
		states[r.Status]++
	}
	if states["running"] == 0 || states["completed"] == 0 {
		t.Errorf("runs: %v", states)
	}
	var versions struct{ Versions []struct{ Number int } }
	p.get("/ops/policy/versions", &versions)
	if len(versions.Versions) != 1 {
		t.Errorf("the demo touched the policy: %v", versions)
	}
	var people struct{ Operators []struct{ Name string } }
	p.get("/ops/operators", &people)
	if len(people.Operators) != 1 {
		t.Errorf("its operator is still there: %v", people)
	}
}

// wantPages signs in and looks at every page that the menu names, and at what the lists
// lead to: none may be empty.
func (p *process) wantPages(t *testing.T) {
	t.Helper()
	b := p.signIn(t)
	link := regexp.MustCompile(`href="(/ui/[^"#?]+)"`)
	var seen []string
	for _, found := range link.FindAllStringSubmatch(b.first, -1) {
		path := found[1]
		if slices.Contains(seen, path) || strings.HasPrefix(path, "/ui/static") {
			continue
		}
		seen = append(seen, path)
		status, page := b.open(p.url + html.UnescapeString(path))
		if status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		// Nobody is told, which only an operator can change; nothing is wrong; and no agent hands work on.
		if strings.Contains(page, `class="empty"`) && path != "/ui/settings" && path != "/ui/alarms" &&
			path != "/ui/handoffs" {
			t.Errorf("%s is empty after the demo", path)
		}
		if len(page) > 100_000 {
			t.Errorf("%s has %d bytes", path, len(page))
		}
	}
	for _, page := range []string{
		"inbox", "overview", "agents", "mail", "tasks", "sessions", "runs", "handoffs", "ledger",
		"deliveries", "policy", "settings",
	} {
		if !slices.Contains(seen, "/ui/"+page) {
			t.Errorf("the menu does not lead to %s", page)
		}
	}
}

func TestTheDemoKeepsOutOfOtherPeoplesWay(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	mustRun(t, p.dir, "agents", "add", "our-executor", "--label", "role=executor")
	if code, out := run(t, p.dir, "demo", "--once"); code != 1 || !strings.Contains(out, "our-executor") ||
		!strings.Contains(out, "--workspace playground") {
		t.Errorf("%d %s", code, out)
	}
	if out := mustRun(t, p.dir, "demo", "--once", "--workspace", "playground"); !strings.Contains(out, "gates wait") {
		t.Error(out)
	}
	if out := mustRun(t, p.dir, "task", "ls"); !strings.Contains(out, "There are no tasks") {
		t.Errorf("the default workspace has tasks of the demo:\n%s", out)
	}
}

func TestTheDemoGoesOnUntilItIsStopped(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	var out testbed.Buffer
	cmd := exec.CommandContext(context.Background(), binary, "demo", "--data", p.dir)
	cmd.Env, cmd.Stdout, cmd.Stderr = cleanEnv(), &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	testbed.Until(t, "its word that the agents go on", func() bool {
		return strings.Contains(out.String(), "The agents go on")
	}, &out)
	entries := func() (head int64) {
		var status struct{ Entries int64 }
		p.get("/ops/status", &status)
		return status.Entries
	}
	before := entries()
	testbed.Until(t, "more to happen", func() bool { return entries() >= before+3 })
	_ = cmd.Process.Signal(syscall.SIGINT)
	if err := cmd.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v\n%s", err, out.String())
	}
	if runs := mustRun(t, p.dir, "run", "ls"); strings.Contains(runs, "running") {
		t.Errorf("it left a run behind that nobody watches:\n%s", runs)
	}
	if people := mustRun(t, p.dir, "operators", "ls"); strings.Contains(people, "demo-dana") {
		t.Error(fmt.Sprint("its operator is still there:\n", people))
	}
}
