package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"signalbox/internal/task/amp"
	"signalbox/internal/testbed"
)

// fleet is a server, dispatches, and workers that execute them, each a process of its own. What is promised of claims:
// a dispatch has one holder at a time, and one result of it is accepted. The work of a worker that was killed, or that
// fell silent, is begun again by another after its lease has ended, and never before.
type fleet struct {
	t       *testing.T
	p       *process
	address string
	keys    []string // of the agents
	dir     string   // where commands write what they do, and look whether they are held
	workers map[string]*exec.Cmd
}

const (
	fleetTasks, fleetAgents, fleetProcesses = 100, 5, 4
	fleetKills                              = 5 // workers in each round
	fleetRounds                             = 3
)

// agentScript is an agent that does not listen to SIGTERM. It says what it begins and how its answer was taken, and is
// held in the middle of its work while the file hold is there. A server that is away is asked again.
const agentScript = `trap '' TERM; cat >/dev/null
say() { echo "$1 $SIGNALBOX_TASK $SIGNALBOX_GENERATION $PPID $2" >>"$DIR/log"; }
say begin
while [ -e "$DIR/hold" ]; do sleep 0.2; done
while :; do
	said=$(sed "s/T-2026-044/$SIGNALBOX_TASK/" "$DIR/result.json" | "$BINARY" tasks result "$SIGNALBOX_TASK" - 2>&1)
	case "$said" in Accepted*) say accepted; break;; *AMP_E_*) say refused "$(echo $said)"; break;; esac
	sleep 0.2
done`

func startFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, address: testbed.FreeAddress(t), dir: t.TempDir(), workers: map[string]*exec.Cmd{}}
	data := t.TempDir()
	configure(t, data, "clock: {movable: true}\ntasks: {plan_approval: false}\n")
	f.p = up(t, data, "--listen", f.address)
	testbed.Write(t, filepath.Join(f.dir, "result.json"), resultPayload)
	coordinator := f.p.agent(t, "coordinator", `"role":"coordinator"`)
	for i := range fleetTasks {
		id := fmt.Sprintf("T-2026-%03d", 100+i)
		payload := strings.ReplaceAll(dispatchPayload, "T-2026-044", id)
		raw, err := amp.Compose(amp.TypeDispatch, amp.Coordinator, id, []byte(payload), 0, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if status, answer, err := f.p.callAs(coordinator, "POST", "/amp/messages", string(raw)); err != nil || status != 202 {
			t.Fatalf("%d %s %v", status, answer, err)
		}
	}
	for i := range fleetAgents {
		f.keys = append(f.keys, f.p.agent(t, fmt.Sprint("worker-", i), `"role":"executor"`))
	}
	return f
}

// work starts a worker of the agent.
func (f *fleet) work(agent int) {
	f.t.Helper()
	cmd := exec.CommandContext(testbed.Context(f.t), binary, "tasks", "--key", f.keys[agent], "--server", "http://"+f.address,
		"work", "executor", "--look", "1s", "--output", f.dir, "--", "sh", "-c", agentScript)
	cmd.Env = append(cleanEnv(), "DIR="+f.dir, "BINARY="+binary)
	testbed.Background(f.t, cmd)
	f.workers[fmt.Sprint(cmd.Process.Pid)] = cmd
}

// said is what commands said with a word, by task and generation of the lease: the worker, and what more they said.
func (f *fleet) said(word string) map[[2]string][2]string {
	f.t.Helper()
	all := map[[2]string][2]string{}
	for line := range strings.Lines(testbed.ReadAny(filepath.Join(f.dir, "log"))) {
		part := strings.SplitN(strings.TrimSpace(line), " ", 5)
		if len(part) < 4 || part[0] != word {
			continue
		}
		lease := [2]string{part[1], part[2]}
		if _, again := all[lease]; again && word == "begin" {
			f.t.Errorf("%s was begun twice under the lease %s", part[1], part[2])
		}
		all[lease] = [2]string{part[3], strings.Join(part[4:], "")}
	}
	return all
}

// busy are the live workers whose commands have begun and not ended.
func (f *fleet) busy() (pids []string) {
	f.t.Helper()
	accepted, refused := f.said("accepted"), f.said("refused")
	for lease, one := range f.said("begin") {
		_, done := accepted[lease]
		_, late := refused[lease]
		if !done && !late && f.workers[one[0]] != nil {
			pids = append(pids, one[0])
		}
	}
	return pids
}

// interrupt kills workers in the middle of their work, and the server; both begin again. Then so much time passes that
// all leases end. The commands of the workers that live answer while the server is away or, if they are late, after that.
func (f *fleet) interrupt(late bool) {
	f.t.Helper()
	hold := filepath.Join(f.dir, "hold")
	testbed.Write(f.t, hold, "")
	var busy []string
	testbed.Until(f.t, "workers to be in the middle of work", func() bool {
		busy = f.busy()
		return len(busy) >= 2*fleetKills
	}, f.p.log)
	for _, pid := range busy[:fleetKills] {
		_ = f.workers[pid].Process.Kill()
		delete(f.workers, pid)
	}
	f.p.kill()
	release := func() {
		if err := os.Remove(hold); err != nil {
			f.t.Fatal(err)
		}
	}
	if !late {
		release()
	}
	f.p = up(f.t, f.p.dir, "--listen", f.address)
	var clock struct{ Now time.Time }
	f.p.get("/ops/clock", &clock)
	later, _ := json.Marshal(map[string]any{"now": clock.Now.Add(31 * time.Minute)})
	if status, answer, err := f.p.call("PUT", "/ops/clock", string(later)); err != nil || status != 200 {
		f.t.Fatalf("%d %s %v\n%s", status, answer, err, f.p.log)
	}
	if late {
		release()
	}
	for i := range fleetKills {
		f.work(i % fleetAgents)
	}
}

// leaseEntry is what the ledger says of an executor's lease, and of a result.
type leaseEntry struct {
	Seq     int64  `json:"seq"`
	Kind    string `json:"kind"`
	Subject string `json:"subject"`
	Body    struct {
		Errors []struct{ Code, Detail string }
		Record json.RawMessage
		Task   *struct {
			Seats map[string]struct {
				Agent, Claim string
				Generation   int64
				Lost         bool
			}
		}
	} `json:"body"`
}

// check goes through the ledger: leases follow one another and do not overlap, each dispatch has one result, from the
// holder of a live lease that was begun once, and what was refused was refused with the reason.
func (f *fleet) check() {
	f.t.Helper()
	begun, accepted := f.said("begin"), f.said("accepted")
	type seat struct {
		agent, claim string
		generation   int64
		lost         bool
	}
	seats, results, refused, again := map[string]seat{}, map[string]int{}, 0, 0
	for after := int64(0); ; {
		var page struct {
			Entries []leaseEntry
			Next    int64
		}
		f.p.get(fmt.Sprintf("/ops/ledger?limit=1000&after=%d", after), &page)
		for _, e := range page.Entries {
			if e.Kind == "task.refused" {
				refused++
				if len(e.Body.Errors) == 0 || e.Body.Errors[0].Detail == "" ||
					e.Body.Errors[0].Code != string(amp.AuthRole) && e.Body.Errors[0].Code != string(amp.WrongState) {
					f.t.Errorf("entry %d refuses for another reason than that somebody else had it: %+v", e.Seq, e.Body.Errors)
				}
			}
			if e.Body.Task == nil {
				continue
			}
			was, is := seats[e.Subject], e.Body.Task.Seats["executor"]
			now := seat{is.Agent, is.Claim, is.Generation, is.Lost}
			if same := (seat{was.agent, was.claim, was.generation, now.lost}) == now; !same {
				if was.generation > 0 && !was.lost || now.generation != was.generation+1 {
					f.t.Errorf("entry %d gives %s to another while its lease lives: %+v, then %+v", e.Seq, e.Subject, was, now)
				}
				if was.generation > 0 {
					again++
				}
			}
			seats[e.Subject] = now
			if e.Kind != "task.reported" {
				continue
			}
			var result struct {
				Generation int64 `json:"x_generation"`
			}
			if err := json.Unmarshal(e.Body.Record, &result); err != nil {
				f.t.Fatal(err)
			}
			lease := [2]string{e.Subject, fmt.Sprint(result.Generation)}
			if _, has := begun[lease]; !has || now.lost || now.generation != result.Generation {
				f.t.Errorf("entry %d takes a result of %v from somebody without the lease: %+v", e.Seq, lease, now)
			}
			results[e.Subject]++
		}
		if after = page.Next; len(page.Entries) == 0 {
			break
		}
	}
	for i := range fleetTasks {
		if id := fmt.Sprintf("T-2026-%03d", 100+i); results[id] != 1 {
			f.t.Errorf("%s has %d accepted results", id, results[id])
		}
	}
	for lease := range accepted {
		if results[lease[0]] != 1 {
			f.t.Errorf("an agent heard that its result of %v was accepted, and it is not in the ledger", lease)
		}
	}
	if again < fleetKills {
		f.t.Errorf("%d leases ended and were taken again; the test shows nothing", again)
	}
	f.t.Logf("%d commands begun, %d leases taken again, %d documents refused", len(begun), again, refused)
}

// TestTwentyWorkersDoAHundredDispatchesOnceThoughTheyAreKilled kills workers in the middle of their work, and the server.
func TestTwentyWorkersDoAHundredDispatchesOnceThoughTheyAreKilled(t *testing.T) {
	t.Parallel()
	f := startFleet(t)
	for i := range fleetAgents * fleetProcesses {
		f.work(i % fleetAgents)
	}
	for round := range fleetRounds {
		f.interrupt(round%2 == 1)
	}
	var reported struct{ Entries []json.RawMessage }
	testbed.Until(t, "a result of every dispatch", func() bool {
		f.p.get("/ops/ledger?kind=task.reported&limit=1000", &reported)
		return len(reported.Entries) >= fleetTasks
	}, f.p.log)
	f.check()
	if out := mustRun(t, f.p.dir, "ledger", "rebuild", "--check"); !strings.Contains(out, " 0 differences") {
		t.Errorf("rebuild --check: %s", out)
	}
}
