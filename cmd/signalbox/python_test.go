package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// TestTheCallsOfTheSpecificationWorkAsItShowsThem: registering with --provider http://…, what a message in the queue says
// about its end, and acknowledging many at once and one by one.
func TestTheCallsOfTheSpecificationWorkAsItShowsThem(t *testing.T) {
	t.Parallel()
	with := python(t)
	p := up(t, t.TempDir())
	// In a folder that knows no server: the flag alone says where.
	elsewhere, dir := t.TempDir(), filepath.Join(t.TempDir(), "my-agent")
	mail := func(args ...string) string {
		t.Helper()
		return mustRun(t, elsewhere, append([]string{"mail", "--dir", dir}, args...)...)
	}
	code, out := run(t, elsewhere, "mail", "--dir", dir, "register", "--name", "my-agent", "--provider",
		"http://127.0.0.1:1")
	if code == 0 || !strings.Contains(out, "127.0.0.1:1 cannot be reached") {
		t.Errorf("with a provider that is not there: exit code %d\n%s", code, out)
	}
	if out := mail("register", "--name", "my-agent", "--provider", p.url); !strings.Contains(out,
		"my-agent@default.signalbox.local") {
		t.Errorf("it does not tell the address:\n%s", out)
	}
	me := &mailer{t, p, "my-agent", dir, with}
	alice := newMailer(t, p, "alice", with)
	var sent []string
	for _, subject := range []string{"one", "two", "three", "four", "five"} {
		alice.mail("send", "my-agent", subject, "a message")
	}
	var page struct {
		Count, Remaining int
		Messages         []struct {
			ID    string
			Stays float64
		}
	}
	me.python(&page, "pending")
	if page.Count != 5 || page.Remaining != 0 || len(page.Messages) != 5 {
		t.Fatalf("%+v", page)
	}
	const week = 7 * 24 * 3600
	for _, m := range page.Messages {
		// Its end is reckoned before it is in the queue, a moment earlier.
		if m.Stays > week || m.Stays < week-60 {
			t.Errorf("%s stays for %.0f seconds, and the specification shows %d", m.ID, m.Stays, week)
		}
		sent = append(sent, m.ID)
	}
	type answer struct {
		Status       int
		Acknowledged any
		AlreadyAcked bool `json:"already_acked"`
	}
	acked := func(want answer, args ...string) {
		t.Helper()
		var got answer
		me.python(&got, args...)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%v: %s", args, d)
		}
	}
	acked(answer{200, 3.0, false}, "ack", sent[0], sent[1], sent[2])
	acked(answer{200, 1.0, false}, "ack", sent[0], sent[3], "msg_1_none") // what is gone is no error
	acked(answer{200, true, false}, "delete", sent[4])
	acked(answer{200, true, true}, "delete", sent[4])
	me.python(&page, "pending")
	if page.Count != 0 {
		t.Errorf("still there: %+v", page)
	}
	// What the client has fetched it reads and deletes, as the commands of the specification do.
	alice.mail("send", "my-agent", "six", "to be read")
	mail("fetch")
	var inbox struct{ Messages []struct{ ID string } }
	if err := json.Unmarshal([]byte(mail("inbox", "--json")), &inbox); err != nil || len(inbox.Messages) != 1 {
		t.Fatalf("%v %+v", err, inbox)
	}
	id := inbox.Messages[0].ID
	if out := mail("read", id); !strings.Contains(out, "to be read") {
		t.Error(out)
	}
	mail("rm", id)
	if code, out := run(t, elsewhere, "mail", "--dir", dir, "read", id); code == 0 {
		t.Errorf("a deleted message is read:\n%s", out)
	}
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
	testbed.Until(t, "the loop to take what waits, and to print it", func() bool {
		return strings.Contains(m.mail("status", "--json"), `"waiting":0`) &&
			!slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(out.String(), text) })
	}, &out)
}
