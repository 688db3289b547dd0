package main

import (
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/testbed"
)

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
