package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"signalbox/internal/testbed"
)

// desk is a person's terminal: a home folder, and a server that it is told of.
type desk struct {
	t    *testing.T
	home string
	url  string
}

// command is a command of the person, who has no file of the server.
func (m desk) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(testbed.Context(m.t), binary, args...)
	cmd.Dir = m.home
	cmd.Env = append(cleanEnv(), "HOME="+m.home, "XDG_CONFIG_HOME="+filepath.Join(m.home, ".config"), "SIGNALBOX_SERVER="+m.url)
	return cmd
}

// asks starts `login --cli` and returns what it prints, when it has printed its link.
func (m desk) asks() (code, link string, end chan error, said *testbed.Buffer) {
	m.t.Helper()
	cmd := m.command("login", "--cli")
	said, end = &testbed.Buffer{}, make(chan error, 1)
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { end <- cmd.Wait() }()
	form := regexp.MustCompile(`code ([A-Z2-7]{4}-[A-Z2-7]{4}):\s+(http\S+)`)
	testbed.Until(m.t, "the link", func() bool { return form.MatchString(said.String()) }, said)
	found := form.FindStringSubmatch(said.String())
	return found[1], found[2], end, said
}

// TestATerminalSignsInThroughTheBrowser with a real browser and the real command.
func TestATerminalSignsInThroughTheBrowser(t *testing.T) {
	path := testbed.Program(t, "chromium")
	p := up(t, filepath.Join(t.TempDir(), "data"))
	m := desk{t, t.TempDir(), p.url}
	allocator, cancel := chromedp.NewExecAllocator(context.Background(),
		append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(path))...)
	defer cancel()
	ctx, stop := chromedp.NewContext(allocator)
	defer stop()
	ctx, stop = context.WithTimeout(ctx, 10*testbed.Patience)
	defer stop()
	do := func(steps ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		if err := chromedp.Do(ctx, steps...); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(texts ...string) {
		t.Helper()
		var body string
		testbed.Until(t, "the page shows "+strings.Join(texts, ", "), func() bool {
			body, _ = chromedp.Run(ctx, chromedp.Evaluate[string]("document.body.innerText"))
			for _, text := range texts {
				if !strings.Contains(body, text) {
					return false
				}
			}
			return true
		})
	}
	do(chromedp.Navigate(strings.TrimSpace(mustRun(t, p.dir, "login"))),
		chromedp.Click(chromedp.CSS("form[action='/ui/login/code'] button")))
	shows("Inbox") // signed in: the next page would end the form's request
	if out, err := m.command("status").CombinedOutput(); err == nil || !strings.Contains(string(out), "login --cli") {
		t.Fatalf("a terminal that is not signed in: %v %s", err, out)
	}

	code, link, end, said := m.asks()
	var before, after struct{ Entries int64 }
	p.get("/ops/status", &before)
	// Opening the link confirms nothing, however often. The page says who asks.
	for range 2 {
		do(chromedp.Navigate(link))
		machine, _ := os.Hostname()
		shows(code, machine, "127.0.0.1", filepath.Base(os.Args[0]))
	}
	p.get("/ops/status", &after)
	if after.Entries != before.Entries || len(end) != 0 {
		t.Fatalf("the link confirmed something: %s", said)
	}
	do(chromedp.Click(chromedp.CSS("button[value=confirm]")))
	shows("has your power for a day")
	if err := testbed.Receive(t, "the terminal to be signed in", end); err != nil {
		t.Fatalf("%v %s", err, said)
	}
	if out, err := m.command("operators", "ls").CombinedOutput(); err != nil || !strings.Contains(string(out), "admin") {
		t.Fatalf("the terminal has no power: %v %s", err, out)
	}
	if strings.Contains(said.String(), "sbx_op_") {
		t.Error("the token is printed")
	}
	checkKept(t, m.home)
	entries := mustRun(t, p.dir, "ledger", "tail", "--json", "--lines", "20")
	for _, want := range []string{"login.confirmed", "login.taken", "key.issued"} {
		if !strings.Contains(entries, want) {
			t.Errorf("the ledger has no %s", want)
		}
	}
	// The same link once more gives nothing.
	do(chromedp.Navigate(link), chromedp.Click(chromedp.CSS("button[value=confirm]")))
	shows("answered already")

	_, link, end, said = m.asks()
	do(chromedp.Navigate(link), chromedp.Click(chromedp.CSS("button[value=refuse]")))
	shows("the terminal gets nothing")
	if err := testbed.Receive(t, "the terminal to be refused", end); err == nil || !strings.Contains(said.String(), "refused") {
		t.Errorf("%v %s", err, said)
	}

	if out, err := m.command("login", "--cli", "--forget").CombinedOutput(); err != nil {
		t.Errorf("%v %s", err, out)
	}
	if out, err := m.command("status").CombinedOutput(); err == nil {
		t.Errorf("the terminal is still signed in: %s", out)
	}
}

// checkKept fails if the token is in a file that others can read.
func checkKept(t *testing.T, home string) {
	t.Helper()
	files, _ := filepath.Glob(home + "/.config/signalbox/*")
	if len(files) == 0 {
		t.Error("nothing is kept")
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
}

// changed is a text with another first letter.
func changed(text string) string {
	if text[0] == 'A' {
		return "B" + text[1:]
	}
	return "A" + text[1:]
}

// TestATerminalIsNotSignedInByItself tries what an agent would: to ask, and to take the answer without a person, or another's.
func TestATerminalIsNotSignedInByItself(t *testing.T) {
	p := up(t, filepath.Join(t.TempDir(), "data"))
	post := func(path string, body any, header ...string) (int, string) {
		t.Helper()
		text, _ := json.Marshal(body)
		all := map[string]string{"Content-Type": "application/json"}
		for i := 0; i+1 < len(header); i += 2 {
			all[header[i]] = header[i+1]
		}
		status, answer, _ := testbed.Call(t, web, http.MethodPost, p.url+path, string(text), all)
		return status, answer
	}
	ask := func() (out struct{ Question, Secret string }) {
		t.Helper()
		status, answer := post("/login/cli", map[string]string{"machine": strings.Repeat("m", 500)})
		if err := json.Unmarshal([]byte(answer), &out); err != nil || status != 201 {
			t.Fatalf("%d %s", status, answer)
		}
		return out
	}
	one, other := ask(), ask()
	look := func(question, secret string) (int, string) {
		return post("/login/cli/token", map[string]string{"question": question, "secret": secret})
	}
	if status, answer := look(one.Question, one.Secret); status != 200 || strings.Contains(answer, "token") {
		t.Errorf("nobody has confirmed: %d %s", status, answer)
	}
	for name, try := range map[string][2]string{
		"another's secret": {one.Question, other.Secret}, "no secret": {one.Question, ""},
		"a changed question": {changed(one.Question), one.Secret}, "no question": {"", one.Secret},
	} {
		if status, answer := look(try[0], try[1]); status != 401 {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	// An operator's token confirms nothing either: that takes a session of the dashboard.
	if status, _ := post("/ui/terminal", map[string]string{}, "Authorization", "Bearer "+p.token()); status < 300 && status != 200 {
		t.Errorf("%d", status)
	}
	if status, answer := look(one.Question, one.Secret); status != 200 || strings.Contains(answer, "token") {
		t.Errorf("confirmed without a person: %d %s", status, answer)
	}
	if status, _ := post("/login/cli", map[string]string{}, "Origin", "https://evil.example"); status != 403 {
		t.Errorf("a page asks: %d", status)
	}
	last := 0
	for range 40 {
		last, _ = post("/login/cli", map[string]string{})
	}
	if last != http.StatusTooManyRequests {
		t.Errorf("asking again and again: %d", last)
	}
	if status, answer, err := p.call("DELETE", "/ops/login/cli", ""); status != 403 || err != nil {
		t.Errorf("the token of the data folder can end itself: %d %s %v", status, answer, err)
	}
}
