package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"signalbox/internal/cli"
	"signalbox/internal/testbed"
)

// agentKey is that of a new agent, asker.
func agentKey(t *testing.T, dir string) string {
	t.Helper()
	var added struct{ Keys map[string]string }
	if err := json.Unmarshal([]byte(mustRun(t, dir, "agents", "add", "asker", "--json")), &added); err != nil {
		t.Fatal(err)
	}
	return added.Keys["signal"]
}

// TestSeveralGatesAreDecidedAtOnce, also when one of them cannot be.
func TestSeveralGatesAreDecidedAtOnce(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	key := agentKey(t, p.dir)
	var gates []string
	for i := range 2 {
		body := fmt.Sprintf(
			`{"amp_version":"2.0","type":"gate_request","agent_id":"asker","run_id":"r","request_id":"%d","summary":"Ready",`+
				`"proposed_action":"Send it"}`, i,
		)
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.url+"/amp/gate_request",
			strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var answer struct {
			GateID string `json:"gate_id"`
		}
		err = json.NewDecoder(res.Body).Decode(&answer)
		_ = res.Body.Close()
		if err != nil || answer.GateID == "" {
			t.Fatal(res.Status, err)
		}
		gates = append(gates, answer.GateID)
	}
	code, out := run(t, p.dir, "gates", "reject", gates[0], "gate_nowhere", gates[1], "--reason", "Not today")
	if code != 1 || strings.Count(out, " is rejected.") != 2 || !strings.Contains(out, "gate_nowhere") {
		t.Errorf("%d %s", code, out)
	}
	for _, id := range gates {
		if shown := mustRun(t, p.dir, "gates", "show", id); !strings.Contains(shown, "Not today") {
			t.Errorf("%s", shown)
		}
	}
	if code, out := run(t, p.dir, "gates", "approve"); code != 2 || !strings.Contains(out, "the ids of gates") {
		t.Errorf("%d %s", code, out)
	}
}

// TestWhoeverApprovesHearsThatNobodyWaits: a step was asked about, and its agent has gone.
func TestWhoeverApprovesHearsThatNobodyWaits(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	key := agentKey(t, p.dir)
	ctx, leave := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/ahp", strings.NewReader(
		`{"jsonrpc":"2.0","id":1,"method":"ahp/event","params":{"event_type":"pre_action","session_id":"s","agent_id":"a",`+
			`"timestamp":"t","depth":0,"payload":{"tool_name":"bash","arguments":{"command":"eval $x"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Api-Key", key)
	req.Header.Set("Content-Type", "application/json")
	ended := make(chan error, 1)
	go func() {
		_, err := http.DefaultClient.Do(req) //nolint:bodyclose // it has no answer
		ended <- err
	}()
	var page struct{ Gates []struct{ ID string } }
	testbed.Until(t, "a gate", func() bool { p.get("/ops/gates?limit=1", &page); return len(page.Gates) == 1 })
	leave()
	<-ended
	id := page.Gates[0].ID
	if out := mustRun(t, p.dir, "gates", "approve", id); !strings.Contains(
		out,
		"Nobody waits for it: the agent has gone.",
	) {
		t.Error(out)
	}
	if out := mustRun(t, p.dir, "gates", "show", id); !strings.Contains(out, "Nobody waits for it") {
		t.Error(out)
	}
}

// ago is a time that goes on between two calls.
var ago = regexp.MustCompile(`\d+[smh] ago`)

// TestCommandsAnswerToTheirOtherNames: list beside ls, delete beside rm, run and task beside runs and tasks.
func TestCommandsAnswerToTheirOtherNames(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	mustRun(t, p.dir, "agents", "add", "coder")
	for name, other := range map[string]string{
		"agents ls": "agents list", "runs ls": "run list", "tasks ls": "task list", "gates ls": "gates list",
	} {
		one, two := mustRun(t, p.dir, strings.Fields(name)...), mustRun(t, p.dir, strings.Fields(other)...)
		if ago.ReplaceAllString(one, "") != ago.ReplaceAllString(two, "") {
			t.Errorf("%s prints\n%s\nand %s\n%s", name, one, other, two)
		}
	}
	if out := mustRun(t, p.dir, "agents", "delete", "coder"); !strings.Contains(out, "Removed coder") {
		t.Error(out)
	}
	for _, group := range cli.Commands().Commands() {
		for _, c := range group.Commands() {
			if c.Name() == "ls" && !slices.Contains(c.Aliases, "list") {
				t.Errorf("%s has no alias list", c.CommandPath())
			}
			if c.Name() == "rm" && !slices.Contains(c.Aliases, "delete") {
				t.Errorf("%s has no alias delete", c.CommandPath())
			}
		}
	}
}

// TestTheShellCompletesIDsAndNames asks as the scripts of `signalbox completion` do.
func TestTheShellCompletesIDsAndNames(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	mustRun(t, p.dir, "demo", "--once")
	completes := func(words ...string) string {
		t.Helper()
		return mustRun(t, p.dir, append([]string{"__complete"}, words...)...)
	}
	gate := firstGate(t, p)
	for want, words := range map[string][]string{
		gate:                  {"gates", "approve", ""},
		"campaign-writer":     {"agents", "show", ""},
		"checkout-engineer":   {"gates", "ls", "--agent", ""},
		"admin":               {"operators", "token", ""},
		"claude":              {"runs", ""},
		"claude-code":         {"hook", "install", ""},
		"mail.provider":       {"config", "set", ""},
		"T-2026-044":          {"tasks", "show", ""},
		"anthropic":           {"proxy", "key", "set", ""},
		"default\n":           {"agents", "ls", "--workspace", ""},
		"key_":                {"keys", "revoke", ""},
		"campaign-writer\tde": {"keys", "issue", ""},
	} {
		if out := completes(words...); !strings.Contains(out, want) {
			t.Errorf("%q offers\n%s\nand not %q", words, out, want)
		}
	}
	// A second gate may follow; a second agent may not.
	if out := completes("gates", "approve", gate, ""); !strings.Contains(out, "gate_") {
		t.Errorf("a second gate: %s", out)
	}
	if out := completes("agents", "show", "campaign-writer", ""); strings.Contains(out, "checkout-engineer") {
		t.Errorf("a second agent: %s", out)
	}
	p.stop()
	if out := completes("gates", "approve", ""); strings.Contains(out, "gate_") || strings.Contains(out, "signalbox:") {
		t.Errorf("without a server: %s", out)
	}
}

// firstGate is the id of the gate on top of the list.
func firstGate(t *testing.T, p *process) string {
	t.Helper()
	var page struct{ Gates []struct{ ID string } }
	p.get("/ops/gates?limit=1", &page)
	return page.Gates[0].ID
}

// escapes are what a terminal gets that takes no room.
var escapes = regexp.MustCompile("\x1b\\[[0-9;?]*[a-zA-Z]|\r")

// TestListsFitTheTerminal: no line of a list is wider than the terminal, and ids stay whole. What goes
// to a pipe is not cut.
func TestListsFitTheTerminal(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	mustRun(t, p.dir, "demo", "--once")
	for _, command := range []string{
		"gates ls", "agents ls", "runs ls", "tasks ls", "sessions ls", "deliveries ls", "keys ls", "operators ls", "handoffs ls",
		"ledger tail -n 50", "config show",
	} {
		const columns = 80
		var seen string
		term := openTerminal(t, columns, 60, append(strings.Fields(command), "--data", p.dir)...)
		term.ends()
		testbed.Until(t, "what "+command+" prints", func() bool { seen = term.seen.String(); return seen != "" })
		for line := range strings.SplitSeq(escapes.ReplaceAllString(seen, ""), "\n") {
			if n := utf8.RuneCountInString(line); n > columns {
				t.Errorf("%s prints a line of %d columns: %s", command, n, line)
			}
		}
	}
	id := firstGate(t, p)
	if out := mustRun(t, p.dir, "gates", "ls"); !strings.Contains(out, id) {
		t.Errorf("the id is cut: %s", out)
	}
	long := regexp.MustCompile(`(?m)^.{121,}$`)
	if out := mustRun(t, p.dir, "gates", "ls"); !long.MatchString(out) {
		t.Errorf("a pipe gets cut lines:\n%s", out)
	}
	short, whole := mustRun(t, p.dir, "ledger", "tail"), mustRun(t, p.dir, "ledger", "tail", "--body")
	if strings.Contains(short, "{") || !strings.Contains(whole, `{"`) {
		t.Errorf("without --body:\n%s\nwith it:\n%s", short, whole)
	}
}

// TestSessionsAndDeliveriesFromATerminal looks at what the demo left.
func TestSessionsAndDeliveriesFromATerminal(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	mustRun(t, p.dir, "demo", "--once")
	found := regexp.MustCompile(`(?m)^(\S+) +checkout-engineer +(open|silent|ended)`).FindStringSubmatch(
		mustRun(t, p.dir, "sessions", "ls"))
	if found == nil {
		t.Fatal(mustRun(t, p.dir, "sessions", "ls"))
	}
	if out := mustRun(t, p.dir, "sessions", "show", found[1]); !strings.Contains(out, "pre_action") ||
		!strings.Contains(out, "allow") {
		t.Errorf("%s", out)
	}
	if out := mustRun(t, p.dir, "gates", "ls", "--agent", "checkout-engineer"); strings.Contains(out, "campaign-writer") ||
		!strings.Contains(out, "checkout-engineer") {
		t.Errorf("%s", out)
	}
	dead := regexp.MustCompile(`(?m)^(delivery_\S+) +dead`).FindStringSubmatch(
		mustRun(t, p.dir, "deliveries", "ls", "--status", "dead"))
	if dead == nil {
		t.Fatal(mustRun(t, p.dir, "deliveries", "ls"))
	}
	if out := mustRun(t, p.dir, "deliveries", "show", dead[1]); !strings.Contains(out, "410") {
		t.Errorf("%s", out)
	}
	if out := mustRun(t, p.dir, "deliveries", "resend", dead[1]); !strings.Contains(out, "will be sent again") {
		t.Errorf("%s", out)
	}
	if code, out := run(t, p.dir, "deliveries", "show", "delivery_x"); code == 0 || !strings.Contains(out, "delivery_x") {
		t.Errorf("%d %s", code, out)
	}
}

// TestDoctorShowsTheRunningServer: its flags, not those of the doctor, and what waits for a restart.
func TestDoctorShowsTheRunningServer(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir(), "--log-level", "debug")
	mustRun(t, p.dir, "config", "set", "ledger.retention", "90d")
	out := mustRun(t, p.dir, "doctor")
	port := p.url[strings.LastIndexByte(p.url, ':'):] // people are shown a name, and commands use the number
	if !strings.Contains(out, "of the server that is running at http://127.0.0.1"+port) ||
		!regexp.MustCompile(`log\.level +debug +--log-level`).MatchString(out) ||
		!strings.Contains(out, `ledger.retention is "none" in the running server and "90d" in the file. Restart the `+
			`server.`) {
		t.Errorf("%s", out)
	}
	p.stop()
	if out := mustRun(t, p.dir, "doctor"); !strings.Contains(out, "as the next start of the server would read it") {
		t.Errorf("%s", out)
	}
}

// A command has no passkey: it hands the gate to a browser, and says where.
func TestACommandHandsASignedVoteToTheBrowser(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	rules := filepath.Join(t.TempDir(), "policy.yaml")
	text := "version: 1\nrules:\n  - {name: signed, on: [signal], then: gate, gate: {presence: passkey}}\n"
	testbed.Write(t, rules, text)
	mustRun(t, p.dir, "policy", "apply", rules)
	ask(t, p, agentKey(t, p.dir), "run-1", "Send it")
	id := p.pending(t)
	if out := mustRun(t, p.dir, "gates", "show", id); !strings.Contains(out, "signed with a passkey, in a browser") {
		t.Error(out)
	}
	for _, command := range [][]string{{"approve", id}, {"reject", id, "--note", "No."}} {
		code, out := run(t, p.dir, append([]string{"gates"}, command...)...)
		if code != 3 || !strings.Contains(out, "http://localhost:") || !strings.Contains(out, "/ui/account") {
			t.Errorf("%v: exit code %d, %s", command, code, out)
		}
	}
	if out := mustRun(t, p.dir, "login"); !strings.HasPrefix(out, "http://localhost:") {
		t.Error(out)
	}
	if out := mustRun(t, p.dir, "gates", "verify"); !strings.Contains(out, "Verified: ") {
		t.Error(out)
	}
	if code, out := run(t, p.dir, "gates", "verify", id); code != 1 || !strings.Contains(out, "Nobody has voted") {
		t.Errorf("exit code %d, %s", code, out)
	}
	if code, out := run(t, p.dir, "operators", "forget-passkeys", "admin"); code != 1 ||
		!strings.Contains(out, "Stop it") {
		t.Errorf("while the server runs: exit code %d, %s", code, out)
	}
	p.stop()
	if out := mustRun(t, p.dir, "operators", "forget-passkeys", "admin"); !strings.Contains(out, "admin has no passkeys") {
		t.Error(out)
	}
	if code, out := run(t, p.dir, "operators", "forget-passkeys", "nobody"); code != 1 ||
		!strings.Contains(out, "There is no operator") {
		t.Errorf("exit code %d, %s", code, out)
	}
}
