package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/testbed"
)

// python finds a Python that the snippets can run with, Debian's own if need be, and skips
// the test when there is none.
func python(t *testing.T) string {
	t.Helper()
	var out []byte
	var err error
	for _, path := range []string{"python3", "/usr/bin/python3"} {
		if out, err = exec.CommandContext(t.Context(), path, "-c",
			"import requests, cryptography").CombinedOutput(); err == nil {
			return path
		}
	}
	testbed.Missing(t, "the snippets take python3 with requests and cryptography (Debian: "+
		"python3-requests, python3-cryptography): %v %s", err, out)
	return ""
}

// mailer is an agent with a folder of its own, made by our client and used by Python too.
type mailer struct {
	t    *testing.T
	p    *process
	name string
	dir  string
	with string // the path of Python
}

func newMailer(t *testing.T, p *process, name, with string) *mailer {
	t.Helper()
	m := &mailer{t, p, name, filepath.Join(t.TempDir(), name), with}
	m.mail("register", name, "--allow-unsigned") // the snippet of the specification does not sign
	return m
}

func (m *mailer) mail(args ...string) string {
	m.t.Helper()
	return mustRun(m.t, m.p.dir, append([]string{"mail", "--dir", m.dir}, args...)...)
}

func (m *mailer) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(m.t.Context(), m.with,
		append([]string{"-u", "testdata/python/drive.py", m.dir, m.p.url + "/v1"}, args...)...)
	cmd.Env = append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1", "PYTHONIOENCODING=utf-8", "NO_PROXY=*")
	return cmd
}

func (m *mailer) python(answer any, args ...string) {
	m.t.Helper()
	cmd := m.command(args...)
	var failed strings.Builder
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil || json.Unmarshal(out, answer) != nil {
		m.t.Fatalf("%v: %v\n%s%s", args, err, out, failed.String())
	}
}

// TestThePythonOfTheSpecificationRunsAsItStands: sending with an attachment, verifying,
// downloading, and the loop that polls.
func TestThePythonOfTheSpecificationRunsAsItStands(t *testing.T) {
	t.Parallel()
	with := python(t)
	p := up(t, t.TempDir())
	alice, bob := newMailer(t, p, "alice", with), newMailer(t, p, "bob", with)
	const to = "bob@default.signalbox.local"
	file := filepath.Join(t.TempDir(), "my log.txt")
	testbed.Write(t, file, "all is well")
	alice.mail("send", "bob", "signed by Go", "plain text", "--context", `{"b":1.5,"a":[true,null]}`)
	alice.mail("send", "bob", "für héllo ☕", "naïve 😀 \u2028 \x7f / <b>&", "--context", `{"ü":{"ß":"ö"},"z":"😀"}`)
	for _, args := range [][]string{{"sign", to}, {"send", to, file}} {
		var sent struct{ Status, Method string }
		alice.python(&sent, args...)
		if sent.Status != "queued" || sent.Method != "relay" {
			t.Errorf("%v: %+v", args, sent)
		}
	}
	type checked struct {
		Subject          string
		Verified, Forged bool
		Files            []string
	}
	var got []checked
	bob.python(&got, "check", t.TempDir())
	want := []checked{
		{Subject: "signed by Go", Verified: true, Files: []string{}},
		{Subject: "für héllo ☕", Verified: true, Files: []string{}},
		{Subject: "signed by Python", Verified: true, Files: []string{}},
		{Subject: "with a file", Files: []string{"all is well"}}, // the snippet does not sign
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	bob.polls(t, "Message: plain text", "Message: héllo ☕ 😀",
		"From: alice@default.signalbox.local\nSubject: with a file\nMessage: see the file\n")
}

// polls runs the loop until it has taken everything, and ends it.
func (m *mailer) polls(t *testing.T, texts ...string) {
	t.Helper()
	var out testbed.Buffer
	loop := m.command("poll")
	loop.Stdout, loop.Stderr = &out, &out
	if err := loop.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = loop.Process.Kill()
		_ = loop.Wait()
	}()
	testbed.Until(t, "the loop to take what waits", func() bool {
		return strings.Contains(m.mail("status", "--json"), `"waiting":0`)
	}, &out)
	for _, text := range texts {
		if !strings.Contains(out.String(), text) {
			t.Errorf("the loop does not print %q:\n%s", text, out.String())
		}
	}
}
