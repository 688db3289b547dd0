package record_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/record"
	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

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
	text, _ := os.ReadFile(log)
	if _, err := fmt.Sscanf(string(text), "begin %d", &pid); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "the agent's end", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})
}
