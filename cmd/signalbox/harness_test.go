package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/client/ahp"
	"signalbox/internal/conform"
	"signalbox/internal/testbed"
)

// fixture puts the policy of the cases in force, as a person would.
func fixture(t *testing.T, p *process) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fixture.yaml")
	testbed.Write(t, file, conform.HarnessPolicy())
	cmd := exec.CommandContext(t.Context(), binary, "policy", "apply", file, "--data", p.dir)
	cmd.Env = cleanEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// The pipe is a harness of its own to an agent, so it passes the cases as one.
func TestTheStdioHarnessPassesEveryCase(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	fixture(t, p)
	suite, err := conform.HarnessCases(nil)
	if err != nil {
		t.Fatal(err)
	}
	// The agent that starts the pipe is another process than this test, which has started the server.
	agent := testbed.Script(t, filepath.Join(t.TempDir(), "agent"), binary+" harness stdio --data "+p.dir+"\nexit $?\n")
	kit := conform.HarnessKit{Target: agent}
	report, err := kit.Run(t.Context(), suite)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Cases {
		if c.Outcome == "failed" {
			t.Errorf("%s: %s", c.Name, c.Problem)
		}
	}
	if report.Passed < 130 {
		t.Errorf("only %d cases were passed", report.Passed)
	}
}

func TestConformHarnessOnTheCommandLine(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	fixture(t, p)
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), binary, append(args, "--data", p.dir)...)
		cmd.Env = cleanEnv()
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	for _, target := range []string{
		p.url, strings.Replace(p.url, "http", "ws", 1) + "/ahp",
		filepath.Join(p.dir, "ahp.sock"),
	} {
		if out, err := run("conform", "harness", target); err != nil || !strings.Contains(out, " passed, 0 failed") {
			t.Errorf("%s: %v: %s", target, err, out)
		}
	}
	if out, err := run("conform", "harness", "--fixture"); err != nil ||
		!bytes.Equal([]byte(out), conform.HarnessPolicy()) {
		t.Errorf("%v: %s", err, out)
	}
	if out, err := run("conform", "harness"); err == nil || !strings.Contains(out, "Name a harness") {
		t.Errorf("%v: %s", err, out)
	}
}

// While the server is away everything is refused, at once and in a form that can be
// decoded; when it is back the same pipe goes on.
func TestTheStdioHarnessFailsClosed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd := fromCLI(context.Background(), "harness", "stdio", "--data", dir)
	cmd.Env = cleanEnv()
	c, err := ahp.Spawn(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if h, err := c.Handshake(t.Context()); err != nil || !strings.Contains(h.Name, "not reachable") {
		t.Fatalf("%+v %v", h, err)
	}
	act := ahp.Event{Type: ahp.PreAction, Payload: map[string]any{"tool_name": "ls"}}
	want := func(word string) {
		t.Helper()
		d, err := c.Decide(t.Context(), act)
		if err != nil || d.Word != word {
			t.Errorf("%+v %v", d, err)
		}
	}
	want("block")
	if d, err := c.Decide(t.Context(), ahp.Event{Type: ahp.Confirmation, Payload: map[string]any{}}); err != nil ||
		d.Word != "reject" || d.Metadata["fail_closed"] != true {
		t.Errorf("%+v %v", d, err)
	}
	if all, err := c.Batch(t.Context(), []ahp.Event{act, act}); err != nil || all[0].Word != "block" ||
		all[1].Word != "block" {
		t.Errorf("%+v %v", all, err)
	}
	if a, err := c.Query(t.Context(), "should_i_proceed", nil); err != nil || string(a.Answer) != `"no"` {
		t.Errorf("%s %v", a.Answer, err)
	}
	p := up(t, dir)
	want("allow")
	p.kill()
	testbed.Until(t, "a refusal since the server was killed", func() bool {
		d, err := c.Decide(t.Context(), act)
		return err == nil && d.Word == "block" && d.Metadata["fail_closed"] == true
	})
	up(t, dir)
	want("allow")
}

// A decision that was answered is in the ledger, whatever becomes of the server.
func TestADecisionThatWasAnsweredSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := up(t, dir)
	c, err := ahp.Dial(t.Context(), "unix:"+filepath.Join(dir, "ahp.sock"), ahp.WithSession("kill", "a"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Handshake(t.Context()); err != nil {
		t.Fatal(err)
	}
	const many = 20
	for range many {
		if d, err := c.Decide(t.Context(),
			ahp.Event{Type: ahp.PreAction, Payload: map[string]any{"tool_name": "ls"}}); err != nil || !d.Allowed() {
			t.Fatalf("%+v %v", d, err)
		}
	}
	p.kill()
	if d, err := c.Decide(t.Context(), ahp.Event{Type: ahp.PreAction, Payload: map[string]any{}}); err == nil ||
		d.Allowed() {
		t.Errorf("%+v %v", d, err)
	}
	p = up(t, dir)
	status, text, err := p.call(http.MethodGet, "/ops/ledger?kind=step.allowed&limit=100", "")
	var page struct{ Entries []json.RawMessage }
	if err != nil || status != http.StatusOK || json.Unmarshal([]byte(text), &page) != nil || len(page.Entries) != many {
		t.Errorf("%d %v: %d entries", status, err, len(page.Entries))
	}
}
