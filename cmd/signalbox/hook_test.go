package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/internal/testbed"
)

// hookPolicy decides about what the samples say.
const hookPolicy = `version: 1
rules:
  - {name: no, on: [action], when: 'event.command.contains("forbidden")', then: block, reason: "Not here."}
  - {name: person, on: [action], when: 'event.command.contains("deploy")', then: gate,` +
	` reason: "A person looks at deployments."}
  - {name: later, on: [action], when: 'event.command.contains("busy")', then: defer, retry_after: 7s,` +
	` reason: "The line is taken."}
  - {name: softly, on: [action], when: 'event.command.contains("push")', then: modify,` +
	` set: {arguments: {command: "git push --dry-run"}}}
  - {name: other-tool, on: [action], when: 'event.command.contains("elsewhere")', then: modify, set: {tool_name: Read}}
  - {name: no-secrets, on: [prompt], when: 'event.text.contains("secret")', then: block,` +
	` reason: "Keep secrets out of prompts."}
  - {name: politely, on: [prompt], when: 'event.text.contains("rude")', then: modify, set: {prompt: "please"}}
`

// hooked is a server with that policy, whose clients give up after a time.
func hooked(t *testing.T, timeout string) *process {
	t.Helper()
	dir := t.TempDir()
	configure(t, dir, "harness: {timeout: "+timeout+"}\n")
	p := up(t, dir)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	testbed.Write(t, file, hookPolicy)
	mustRun(t, dir, "policy", "apply", file)
	return p
}

// sample is what a CLI says, written by hand in the form of its documents, with a command or
// a prompt put in.
func sample(t *testing.T, name, text string) []byte {
	t.Helper()
	in := testbed.Read(t, filepath.Join("testdata", "hook", name))
	return bytes.ReplaceAll(in, []byte("WHAT"), []byte(text))
}

type said struct {
	out, err string
	code     int
	took     time.Duration
}

// hook runs the hook of a CLI with what it says on standard input.
func hook(t *testing.T, stdin []byte, env []string, args ...string) said {
	t.Helper()
	return hookIn(t, "", stdin, env, args...)
}

// fromCLI is a command that another process runs, in the place of a CLI. The server is a child of this
// test, and a hook refuses a server that was started by whoever has started the hook.
func fromCLI(ctx context.Context, args ...string) *exec.Cmd {
	// The command line must not end with the hook's: then it would be part of the hook's own.
	const script = `for a; do shift; [ "$a" = end ] || set -- "$@" "$a"; done; "$@"; exit $?`
	return exec.CommandContext(ctx, "sh", append(append([]string{"-c", script, "cli", binary}, args...), "end")...)
}

// hookIn runs it in a folder, as CLIs do; "" is this one.
func hookIn(t *testing.T, folder string, stdin []byte, env []string, args ...string) said {
	t.Helper()
	cmd := fromCLI(t.Context(), append([]string{"hook"}, args...)...)
	cmd.Dir, cmd.Env = folder, append(cleanEnv(), env...)
	cmd.Stdin = bytes.NewReader(stdin)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	began := time.Now()
	_ = cmd.Run() // its exit code is looked at
	return said{
		strings.TrimSpace(out.String()), strings.TrimSpace(errOut.String()), cmd.ProcessState.ExitCode(),
		time.Since(began),
	}
}

var ampEnv = []string{"AGENT_TOOL_NAME=Bash", "AMP_THREAD_ID=T-5a1f", "AGENT=amp"}

func TestHooksSayWhatThePolicyDecides(t *testing.T) {
	t.Parallel()
	p := hooked(t, "3s")
	const (
		claudeNo = `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny",` +
			`"permissionDecisionReason":"REASON"}}`
		geminiNo = `{"decision":"deny","reason":"REASON"}`
		gate     = "Not decided yet. A person has to decide this (gate GATE). A person looks at " +
			"deployments. Try the same again in 2 s."
		busy = "Not decided yet. The line is taken. Try the same again in 7 s."
	)
	for _, c := range []struct {
		tool, file, text string
		want             said
	}{
		{"claude-code", "claude-pre.json", "ls", said{out: "{}"}},
		{"claude-code", "claude-pre.json", "forbidden", said{out: strings.Replace(claudeNo, "REASON", "Not here.", 1)}},
		{"claude-code", "claude-pre.json", "busy", said{out: strings.Replace(claudeNo, "REASON", busy, 1)}},
		{"claude-code", "claude-pre.json", "deploy 1", said{out: strings.Replace(claudeNo, "REASON", gate, 1)}},
		{
			"claude-code", "claude-pre.json", "git push",
			said{
				out: `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"ask",` +
					`"permissionDecisionReason":"The policy has changed this call.",` +
					`"updatedInput":{"command":"git push --dry-run","description":"Runs it","timeout":120000}}}`,
			},
		},
		{"claude-code", "claude-prompt.json", "hello", said{out: "{}"}},
		{
			"claude-code", "claude-prompt.json", "my secret",
			said{out: `{"decision":"block","reason":"Keep secrets out of prompts."}`},
		},
		{"claude-code", "claude-post.json", "ls", said{}},
		{"claude-code", "claude-start.json", "", said{}},
		{"claude-code", "claude-stop.json", "", said{}},
		{"claude-code", "claude-end.json", "", said{}},
		{"codex", "codex-pre.json", "ls", said{out: "{}"}},
		{"codex", "codex-pre.json", "forbidden", said{out: strings.Replace(claudeNo, "REASON", "Not here.", 1)}},
		{"codex", "codex-pre.json", "deploy 2", said{out: strings.Replace(claudeNo, "REASON", gate, 1)}},
		{
			"codex", "codex-pre.json", "git push",
			said{
				out: `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow",` +
					`"updatedInput":{"command":"git push --dry-run"}}}`,
			},
		},
		{
			"codex", "codex-prompt.json", "my secret",
			said{out: `{"decision":"block","reason":"Keep secrets out of prompts."}`},
		},
		{"codex", "codex-start.json", "", said{}},
		{"gemini", "gemini-pre.json", "ls", said{out: "{}"}},
		{"gemini", "gemini-pre.json", "forbidden", said{out: strings.Replace(geminiNo, "REASON", "Not here.", 1)}},
		{"gemini", "gemini-pre.json", "deploy 3", said{out: strings.Replace(geminiNo, "REASON", gate, 1)}},
		{
			"gemini", "gemini-pre.json", "git push",
			said{
				out: `{"hookSpecificOutput":{"hookEventName":"BeforeTool","tool_input":{"command":"git push --dry-run",` +
					`"description":"Runs it"}}}`,
			},
		},
		{
			"gemini", "gemini-prompt.json", "my secret",
			said{out: `{"decision":"deny","reason":"Keep secrets out of prompts."}`},
		},
		{"gemini", "gemini-post.json", "ls", said{}},
		{"amp", "amp-bash.json", "ls", said{}},
		{"amp", "amp-bash.json", "forbidden", said{err: "Not here.", code: 2}},
		{"amp", "amp-bash.json", "deploy 4", said{err: gate, code: 2}},
	} {
		got := hook(t, sample(t, c.file, c.text), ampEnv, c.tool, "--data", p.dir)
		got.took = 0
		for _, word := range strings.Fields(got.out + " " + got.err) { // ids differ
			if id := strings.Trim(word, `(").`); strings.HasPrefix(id, "gate_") {
				got.out, got.err = strings.ReplaceAll(got.out, id, "GATE"), strings.ReplaceAll(got.err, id, "GATE")
			}
		}
		if got != c.want {
			t.Errorf("%s %s %q:\n got %+v\nwant %+v", c.tool, c.file, c.text, got, c.want)
		}
	}
	// What a CLI cannot be told is a no that says what is wanted.
	for _, c := range []struct{ tool, file, text, want string }{
		{"amp", "amp-bash.json", "git push", "cannot be given another"},
		{"amp", "amp-bash.json", "git push", "git push --dry-run"},
		{"claude-code", "claude-pre.json", "elsewhere", "nothing else can be changed"},
		{"claude-code", "claude-prompt.json", "rude", `\"please\"`},
	} {
		if got := hook(t, sample(t, c.file, c.text), ampEnv, c.tool, "--data", p.dir); !strings.Contains(got.out+got.err,
			c.want) || got.code != 2 && !strings.Contains(got.out, `"deny"`) && !strings.Contains(got.out, `"block"`) {
			t.Errorf("%+v", got)
		}
	}
	// Only what a person approves can be final.
	for _, file := range []string{"claude-pre.json", "claude-prompt.json"} {
		if got := hook(t, sample(t, file, "ls"), nil, "claude-code", "--final", "--data", p.dir); got.out != "{}" ||
			got.code != 0 {
			t.Errorf("%+v", got)
		}
	}
	var page struct {
		Sessions []struct {
			Session string `json:"session"`
			ID      string `json:"id"`
		}
	}
	p.get("/ops/sessions", &page)
	if len(page.Sessions) != 4 { // one for each CLI, and none for a connection
		t.Errorf("%+v", page)
	}
}

// pending waits for a gate and returns it.
func (p *process) pending(t *testing.T) string {
	t.Helper()
	var page struct{ Gates []struct{ ID string } }
	testbed.Until(t, "a gate", func() bool {
		p.get("/ops/gates?status=pending", &page)
		return len(page.Gates) == 1
	})
	return page.Gates[0].ID
}

func TestAHookWaitsForThePersonWhoDecides(t *testing.T) {
	t.Parallel()
	p := hooked(t, "3s")
	for i, c := range []struct {
		decision string
		args     []string
		want     string
	}{
		{"approve", []string{"--wait", "30s"}, "{}"},
		{
			"approve",
			[]string{"--wait", "30s", "--final"},
			`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`,
		},
		{"reject", []string{"--wait", "30s"}, `"permissionDecision":"deny"`},
	} {
		done := make(chan said, 1)
		in := sample(t, "claude-pre.json", fmt.Sprintf("deploy %d", i))
		go func() { done <- hook(t, in, nil, append([]string{"claude-code", "--data", p.dir}, c.args...)...) }()
		id := p.pending(t)
		if status, text, err := p.call(http.MethodPost, "/ops/gates/"+id+"/"+c.decision,
			`{"note":"I looked."}`); err != nil || status != http.StatusOK {
			t.Fatal(status, text, err)
		}
		if got := <-done; got.code != 0 || !strings.Contains(got.out, c.want) {
			t.Errorf("%d: %+v", i, got)
		}
	}
}

func TestAHookOfAServerElsewhereNeedsTheAgentsKey(t *testing.T) {
	t.Parallel()
	p := hooked(t, "3s")
	var added struct{ Keys map[string]string }
	if err := json.Unmarshal([]byte(mustRun(t, p.dir, "agents", "add", "laptop", "--json")), &added); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(t.TempDir(), "key")
	testbed.Write(t, key, added.Keys["signal"]+"\n")
	in := sample(t, "claude-pre.json", "ls")
	elsewhere := []string{"claude-code", "--data", "nowhere", "--server", p.url}
	if got := hook(t, in, nil, append(elsewhere, "--key-file", key)...); got.out != "{}" || got.code != 0 {
		t.Errorf("%+v", got)
	}
	if got := hook(t, in, []string{"SIGNALBOX_KEY=" + added.Keys["signal"], "SIGNALBOX_SERVER=" + p.url},
		"claude-code"); got.out != "{}" || got.code != 0 {
		t.Errorf("%+v", got)
	}
	for _, env := range [][]string{nil, {"SIGNALBOX_KEY=rs-amp-wrong"}} {
		if got := hook(t, in, env, elsewhere...); got.code != 2 || !strings.Contains(got.out, `"deny"`) ||
			!strings.Contains(got.err, "401") {
			t.Errorf("%+v", got)
		}
	}
	if got := hook(t, in, nil, append(elsewhere, "--key-file", "nowhere")...); got.code != 2 {
		t.Errorf("%+v", got)
	}
}

func TestAHookRefusesWhatItCannotAskOrRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	deaf := silentSocket(t, dir)
	nobody := t.TempDir()
	for _, c := range []struct{ tool, file string }{
		{"claude-code", "claude-pre.json"},
		{"claude-code", "claude-prompt.json"},
		{"codex", "codex-pre.json"},
		{"codex", "codex-prompt.json"},
		{"gemini", "gemini-pre.json"},
		{"gemini", "gemini-prompt.json"},
		{"amp", "amp-bash.json"},
	} {
		got := hook(t, sample(t, c.file, "ls"), ampEnv, c.tool, "--data", nobody)
		if no := strings.Contains(got.out, `"deny"`) || strings.Contains(got.out, `"block"`); got.code != 2 ||
			got.err == "" || c.tool != "amp" && !no {
			t.Errorf("%+v: %+v", c, got)
		}
	}
	// What has happened cannot be refused: it warns, and the session goes on.
	for _, file := range []string{"claude-post.json", "claude-start.json", "claude-stop.json", "claude-end.json"} {
		if got := hook(t, sample(t, file, "ls"), nil, "claude-code", "--data", nobody); got.code != 1 || got.err == "" ||
			got.out != "" {
			t.Errorf("%s: %+v", file, got)
		}
	}
	for _, in := range []string{
		"", "{", "[]", "null", `{"session_id":"s"}`,
		`{"session_id":"s","hook_event_name":"Other"}`, `{"hook_event_name":"PreToolUse","tool_name":"Bash","tool_input":{}}`,
		`{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash"}`,
		`{"session_id":"s","hook_event_name":"BeforeTool","tool_input":{}}`,
	} {
		for _, tool := range []string{"claude-code", "codex", "gemini", "amp"} {
			if got := hook(t, []byte(in), nil, tool, "--data", nobody); got.code != 2 || got.err == "" {
				t.Errorf("%s %q: %+v", tool, in, got)
			}
		}
	}
	if got := hook(t, nil, nil, "claude-code", "--dta", nobody); got.code != 2 {
		t.Errorf("%+v", got)
	}
	// A server that takes the call and says nothing: the hook ends before its CLI gives up.
	got := hook(t, sample(t, "claude-pre.json", "ls"), nil, "claude-code", "--data", deaf)
	if got.code != 2 || !strings.Contains(got.out, `"deny"`) || got.took > 50*time.Second {
		t.Errorf("%+v", got)
	}
}

// TestAHookThatHandsItsCallOnRefusesWithoutAnAnswer, as itself and as the shell that it
// becomes when that takes longer.
func TestAHookThatHandsItsCallOnRefusesWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, answer string
		later        bool
		want         said
	}{
		{"nothing", "", false, said{"", "cannot be asked", 2, 0}},
		{"nothing later", "", true, said{"", "cannot be asked", 2, 0}},
		{"half an answer", "0\n\n{", false, said{"", "cannot be asked", 2, 0}},
		{"half an answer later", "0\n\n{", true, said{"", "cannot be asked", 2, 0}},
		{"no answer", "yes\n\n\n", false, said{"", "cannot be asked", 2, 0}},
		{"no answer later", "yes\n\n\n", true, said{"", "", 2, 0}},
		{"a yes", "0\n\n{}\n", false, said{"{}", "", 0, 0}},
		{"a yes later", "0\n\n{}\n", true, said{"{}", "", 0, 0}},
		{"a no later", "2\nNot \\here.\n\n", true, said{"", `Not \here.`, 2, 0}},
	} {
		socket := filepath.Join(t.TempDir(), "s")
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan said, 1)
		go func() { done <- hook(t, sample(t, "amp-bash.json", "ls"), ampEnv, "amp", "--via", socket) }()
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		var call struct {
			Tool  string
			Input []byte
			Env   map[string]string
		}
		if err := json.NewDecoder(conn).Decode(&call); err != nil || call.Tool != "amp" ||
			!strings.Contains(string(call.Input), "ls") || call.Env["AMP_THREAD_ID"] != "T-5a1f" {
			t.Errorf("%v %+v", err, call)
		}
		if c.later {
			becomesAShell(t, conn)
		}
		_, _ = conn.Write([]byte(c.answer))
		_ = conn.Close()
		if got := <-done; got.code != c.want.code || got.out != c.want.out || !strings.Contains(got.err, c.want.err) {
			t.Errorf("%s: %+v", c.name, got)
		}
		_ = l.Close()
	}
	if got := hook(t, sample(t, "amp-bash.json", "ls"), ampEnv, "amp", "--via",
		filepath.Join(t.TempDir(), "none")); got.code != 2 || !strings.Contains(got.err, "cannot be asked") {
		t.Errorf("%+v", got)
	}
}

// becomesAShell waits until the process at the other end is no longer one of ours.
func becomesAShell(t *testing.T, conn net.Conn) {
	t.Helper()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var peer *syscall.Ucred
	if failed := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); failed != nil || err != nil {
		t.Fatal(failed, err)
	}
	testbed.Until(t, "the hook to become a shell", func() bool {
		path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", peer.Pid))
		return err == nil && path != binary
	})
}

// silentSocket listens where the server's socket would be, and never answers.
func silentSocket(t *testing.T, dir string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "ahp.sock"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return dir
}

// BenchmarkHook compares a hook with a command that does nothing: what is beyond the start
// of the process.
func BenchmarkHook(b *testing.B) {
	p := up(b, b.TempDir())
	in := testbed.Read(b, filepath.Join("testdata", "hook", "claude-pre.json"))
	took := func(args ...string) time.Duration {
		cmd := fromCLI(b.Context(), args...)
		cmd.Env, cmd.Stdin = cleanEnv(), bytes.NewReader(in)
		began := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		return time.Since(began)
	}
	var ours, bare []time.Duration
	for b.Loop() {
		bare = append(bare, took("version"))
		ours = append(ours, took("hook", "claude-code", "--data", p.dir))
	}
	slices.Sort(ours)
	slices.Sort(bare)
	half := len(ours) / 2
	b.ReportMetric(float64(ours[half].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(bare[half].Microseconds())/1000, "bare-p50-ms")
	b.ReportMetric(float64((ours[half]-bare[half]).Microseconds())/1000, "beyond-ms")
}

// inFolder is a sample that is said to come from a folder.
func inFolder(t *testing.T, name, text, folder string) []byte {
	t.Helper()
	return bytes.ReplaceAll(sample(t, name, text), []byte("/srv/ines/shop"), []byte(folder))
}

func TestAGateOfAHookShowsWhatLedToIt(t *testing.T) {
	t.Parallel()
	p := hooked(t, "3s")
	folder := filepath.Join(t.TempDir(), "shop")
	testbed.Folder(t, filepath.Join(folder, "web"))
	testbed.Git(t, folder, "init", "-q", "-b", "prices")
	testbed.Git(t, folder, "commit", "-q", "--allow-empty", "-m", "first")
	testbed.Git(t, folder, "worktree", "add", "-q", "-b", "hotfix", folder+"-hotfix")
	var opened struct{ ID string }
	_, answer, err := p.call("POST", "/runs", `{"engine":"claude","prompt":"go","recorded":true}`)
	if err == nil {
		err = json.Unmarshal([]byte(answer), &opened)
	}
	if err != nil || opened.ID == "" {
		t.Fatal(answer, err)
	}
	run := opened.ID
	for _, c := range []struct{ tool, prompt, step, folder, branch string }{
		{"claude-code", "claude-prompt.json", "claude-pre.json", folder + "/web", "prices"},
		{"codex", "codex-prompt.json", "codex-pre.json", folder + "-hotfix", "hotfix"},
		{"gemini", "gemini-prompt.json", "gemini-pre.json", folder, "prices"},
	} {
		ask := func(file, text string) {
			t.Helper()
			// It works in the folder, as the hooks of CLIs do; claude-code names its folder.
			in := inFolder(t, file, text, c.folder)
			env := []string{"SIGNALBOX_RUN=" + run, "CLAUDE_PROJECT_DIR=" + c.folder}
			if got := hookIn(t, c.folder, in, env, c.tool, "--data", p.dir); got.code != 0 {
				t.Fatalf("%s: %+v", c.tool, got)
			}
		}
		ask(c.prompt, "Put the prices online")
		ask(c.step, "ls -l")
		ask(c.step, "deploy prices")
		shown := mustRun(t, p.dir, "gates", "show", p.pending(t))
		for _, want := range []string{
			"folder     " + c.folder + "\n", "led to it  last prompt: Put the prices online\n",
			"led to it  branch: " + c.branch + "\n", ": ls -l\n", "run        " + run + " (signalbox runs show " + run + ")\n",
		} {
			if !strings.Contains(shown, want) {
				t.Errorf("%s: the gate does not show %q:\n%s", c.tool, want, shown)
			}
		}
		mustRun(t, p.dir, "gates", "reject", p.pending(t), "--note", "no")
	}
}
