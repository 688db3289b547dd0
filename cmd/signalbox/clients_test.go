package main

import (
	"encoding/json"
	"fmt"
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

// bashClients are folders with the amp-*.sh scripts of Agent Messaging and of AI Maestro. Nothing of others is in this
// repository: SIGNALBOX_TEST_AMP_SCRIPTS names the folders of checkouts that have them, separated by colons.
func bashClients(t *testing.T) []string {
	t.Helper()
	folders := filepath.SplitList(os.Getenv("SIGNALBOX_TEST_AMP_SCRIPTS"))
	if len(folders) == 0 {
		t.Skip("SIGNALBOX_TEST_AMP_SCRIPTS names no checkout of the scripts")
	}
	return folders
}

// TestTheBashClientsWorkFromThePage runs what docs/mail.md says about the scripts.
func TestTheBashClientsWorkFromThePage(t *testing.T) {
	t.Parallel()
	folders := bashClients(t)
	_, section, _ := strings.Cut(readPage(t, "docs/mail.md"), "\n## The bash clients\n")
	section, _, _ = strings.Cut(section, "\n## ")
	all := blocks(section)
	if len(all) < 3 {
		t.Fatalf("docs/mail.md has %d blocks about the bash clients", len(all))
	}
	send, answered, register := all[0].text, all[1].text, all[2].text
	for _, folder := range folders {
		testbed.Parallel(t, folder, func(t *testing.T) {
			s := beginWithScripts(t, folder, "")
			s.run(block{text: send + `signalbox mail --dir bob fetch
signalbox mail --dir bob read msg_…
signalbox mail --dir bob send dora "Here" "A file." --attach invoice.csv
` + answered + "signalbox mail --dir bob fetch\nsignalbox mail --dir bob read msg_…\n"})
			for _, want := range []string{"From a script.", "A file.", "Done.", "verified"} {
				if !strings.Contains(s.seen.String(), want) {
					t.Errorf("nothing printed %q:\n%s", want, s.seen.String())
				}
			}

			owned := beginWithScripts(t, folder, "mail: {registration: owner}\n")
			settings, _, _ := strings.Cut(send, "\n")
			owned.run(block{text: settings + "\namp-init.sh --name dora\nsignalbox users add team-b\n" + register +
				`signalbox mail --dir bob fetch
signalbox mail --dir bob send dora "There" "Another file." --attach invoice.csv
` + answered + "signalbox mail --dir bob fetch\nsignalbox mail --dir bob read msg_…\n"})
			for _, want := range []string{"Registration successful", "Hello", "Another file.", "Done.", "verified"} {
				if !strings.Contains(owned.seen.String(), want) {
					t.Errorf("registered by a user, nothing printed %q:\n%s", want, owned.seen.String())
				}
			}
		})
	}
}

// TestTheBashClientsWorkWithBothDefaults goes through every step of both bash clients, with one another and with ours, on
// a default server and without a setting but the server's address and the agent's name.
func TestTheBashClientsWorkWithBothDefaults(t *testing.T) {
	t.Parallel()
	folders := bashClients(t)
	for _, folder := range folders {
		testbed.Parallel(t, folder, func(t *testing.T) {
			s := beginWithScripts(t, folder, "")
			step := func(line string, wanted ...string) {
				t.Helper()
				before := len(s.seen.String())
				s.run(block{text: bashSteps + line + "\n"})
				for _, want := range wanted {
					if now := s.seen.String()[before:]; !strings.Contains(now, want) {
						t.Errorf("%s printed no %q:\n%s", line, want, now)
					}
				}
			}
			step("as dora amp-init.sh --name dora", "AMP identity registered")
			step("as emil amp-init.sh --name emil", "AMP identity registered")
			step(`as dora amp-send.sh emil "Hi" "To a script. äöü" --attach invoice.csv`, "Message sent", "queued")
			step("as emil amp-fetch.sh", "1 new message")
			step("as emil amp-inbox.sh", "Hi")
			step("as emil amp-read.sh msg_…", "To a script. äöü", "invoice.csv")
			step("as emil amp-download.sh msg_… --all", "1 downloaded, 0 failed")
			step(`as emil amp-reply.sh msg_… "Back."`, "Message sent")
			step("as dora amp-fetch.sh; as dora amp-inbox.sh", "Re: Hi")
			step("as dora amp-delete.sh msg_… --force", "Message deleted")
			// With our client, in both directions, whoever begins.
			step(`as dora amp-send.sh bob "Yo" "To ours."`, "Message sent")
			step("signalbox mail --dir bob fetch", "Yo", "verified")
			step(`signalbox mail --dir bob reply msg_… "From ours." --attach invoice.csv`, "queued")
			step("as dora amp-fetch.sh; as dora amp-inbox.sh", "Re: Yo")
			step("as dora amp-read.sh msg_… --json", "From ours.", "bob@default.aimaestro.local", `"trust": "verified"`)
			step("as dora amp-download.sh msg_… --all", "1 downloaded, 0 failed")
			step(`as dora amp-reply.sh msg_… "Done."`, "Message sent")
			step(`signalbox mail --dir bob send emil "Begun" "By ours."`, "queued")
			step("as emil amp-fetch.sh; as emil amp-inbox.sh", "Begun")
			step("as emil amp-read.sh msg_… --json", "By ours.", `"trust": "verified"`)
			step(`as emil amp-reply.sh msg_… "Answered."`, "Message sent")
			step("signalbox mail --dir bob fetch; signalbox mail --dir bob read msg_…", "Answered.")
			// In a folder of theirs, our client verifies what was signed.
			step(`signalbox mail --dir bob send emil "Signed" "In our words."`, "queued")
			step("as emil signalbox mail --agent emil fetch", "Signed", "verified")
			// New keys, as the page says. Generation B has a command of its own.
			if strings.Contains(string(testbed.Read(t, filepath.Join(folder, "amp-init.sh"))), "rotate-keys") {
				step("as dora amp-init.sh --name dora --force", "Keys rotated")
				step(`as dora amp-send.sh bob "Turned" "With keys of my own."`, "Message sent")
				step("signalbox mail --dir bob fetch; signalbox mail --dir bob read msg_…", "With keys of my own.", "verified")
			}
			step("as dora signalbox mail --agent dora rotate", "SHA256:")
			step(`as dora amp-send.sh emil "New" "With the new key."`, "Message sent")
			step("as emil amp-fetch.sh", "1 new message")
		})
	}
}

// TestTheBashClientsFetchFilesOverAMesh: from their own host, which is all that they may reach.
func TestTheBashClientsFetchFilesOverAMesh(t *testing.T) {
	t.Parallel()
	folders := bashClients(t)
	for _, folder := range folders {
		testbed.Parallel(t, folder, func(t *testing.T) {
			one, two := testbed.FreeAddress(t), testbed.FreeAddress(t)
			const secret = "0123456789abcdef"
			a := upWith(t, t.TempDir(), one, "mesh: {host: host-a, hosts: host-b=http://"+two+", secrets: host-b="+secret+"}")
			s := beginWithScripts(t, folder, "mail: {mesh: {host: host-b, hosts: host-a=http://"+one+", secrets: host-a="+
				secret+"}}\n", "--listen", two)
			curl, err := exec.LookPath("curl")
			if err != nil {
				t.Fatal(err)
			}
			testbed.Script(t, filepath.Join(s.dir, "bin", "curl"),
				fmt.Sprintf("case \"$*\" in *%s*) exit 7 ;; esac\nexec %s \"$@\"\n", one, curl))
			s.run(block{text: bashSteps + "as dora amp-init.sh --name dora\n"})
			alice := newMailer(t, a, "alice", "")
			alice.mail("send", "dora", "Hello", "With a file.", "--attach", filepath.Join(s.dir, "invoice.csv"))
			s.run(block{text: bashSteps + `as dora amp-fetch.sh; as dora amp-inbox.sh
as dora amp-read.sh msg_…
as dora amp-download.sh msg_… --all
as dora amp-reply.sh msg_… "Back." --attach invoice.csv
`})
			for _, want := range []string{"With a file.", "1 downloaded, 0 failed", "Message sent"} {
				if !strings.Contains(s.seen.String(), want) {
					t.Errorf("nothing printed %q:\n%s", want, s.seen.String())
				}
			}
			alice.receives(t, "Back.", "dora@default.aimaestro.local")
			all := alice.letters(t)
			alice.mail("download", all[0].ID, "--all", "--dest", alice.dir)
			if text := testbed.Read(t, filepath.Join(alice.dir, "invoice.csv")); !strings.Contains(string(text), "1,20") {
				t.Errorf("%q", text)
			}
		})
	}
}

// bashSteps lets an agent of its own folder run a script, with the defaults of the script.
const bashSteps = `as() { who=$1; shift; mkdir -p "home-$who"; env HOME="$PWD/home-$who" ` +
	`AMP_MAESTRO_URL=http://127.0.0.1:7446 CLAUDE_AGENT_NAME="$who" "$@"; }` + "\n"

// beginWithScripts begins a story in which bob has an address and the scripts are on the path.
func beginWithScripts(t *testing.T, folder, config string, args ...string) *story {
	t.Helper()
	scripts, err := filepath.Glob(filepath.Join(folder, "amp-*.sh"))
	if err != nil || len(scripts) == 0 {
		t.Fatalf("%s has no amp-*.sh: %v", folder, err)
	}
	s := begin(t, config, args...)
	for _, script := range scripts {
		s.install(filepath.Base(script), script)
	}
	s.write("invoice.csv", block{text: "number,amount\n1,20\n"})
	s.run(block{text: `signalbox users add team-a
signalbox mail --dir bob register bob --user-key uk_…
`})
	return s
}
