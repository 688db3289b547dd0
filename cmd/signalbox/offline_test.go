package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/client/ahp"
	"signalbox/internal/testbed"
)

// offlinePolicy lets the agent of the socket read while the server is away.
const offlinePolicy = `version: 1
rules:
  - {name: reads, on: [action], when: 'agent.name == "local" && event.tool in ["Read", "Grep"]', then: allow,` +
	` on_unreachable: allow}
`

// offline is a server with hooks that go on without it.
type offline struct {
	*process
	t     *testing.T
	args  []string // of the hook, as the settings have them
	spool string
	calls int
}

// goOffline starts a server, applies a policy and installs hooks as a person does.
func goOffline(t *testing.T, source string) *offline {
	t.Helper()
	dir, project, state := t.TempDir(), t.TempDir(), t.TempDir()
	o := &offline{t: t, process: up(t, dir)}
	file := filepath.Join(t.TempDir(), "policy.yaml")
	testbed.Write(t, file, source)
	mustRun(t, dir, "policy", "apply", file)
	cmd := exec.CommandContext(t.Context(), binary, "hook", "install", "claude-code", "--project", "--offline", "--data", dir)
	cmd.Dir, cmd.Env = project, append(cleanEnv(), "XDG_STATE_HOME="+state)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	settings := testbed.Read(t, filepath.Join(project, ".claude", "settings.json"))
	_, line, _ := strings.Cut(string(settings), " hook claude-code ")
	line, _, _ = strings.Cut(line, " ||")
	line, _, _ = strings.Cut(line, `"`)
	o.args = append([]string{"claude-code"}, strings.Fields(line)...)
	o.spool = o.args[slices.Index(o.args, "--spool")+1]
	if !strings.HasPrefix(o.spool, state) || !slices.Contains(o.args, "--trust") {
		t.Fatalf("the hook is %q", o.args)
	}
	return o
}

// goOfflineListed is goOffline after a first call, with which the list of tools comes.
func goOfflineListed(t *testing.T) *offline {
	t.Helper()
	o := goOffline(t, offlinePolicy)
	o.use("Read", "/0")
	return o
}

// use has the hook asked about a tool, as Claude Code does, and reports whether it may be used.
func (o *offline) use(tool, path string, more ...string) bool {
	o.t.Helper()
	got := hook(o.t, o.input(tool, path), nil, append(slices.Clone(o.args), more...)...)
	switch {
	case got.code == 0 && got.out == "{}":
		return true
	case strings.Contains(got.out, `"deny"`):
		return false
	}
	o.t.Fatalf("%s %s: %+v", tool, path, got)
	return false
}

func (o *offline) input(tool, path string) []byte {
	o.calls++
	return fmt.Appendf(nil, `{"session_id":"s1","cwd":"/srv","hook_event_name":"PreToolUse","tool_name":%q,`+
		`"tool_input":{"file_path":%q},"tool_use_id":"toolu_%d"}`, tool, path, o.calls)
}

// again starts the server again.
func (o *offline) again() { o.process = up(o.t, o.dir) }

// unsupervised is an entry of what happened without the server.
type unsupervised struct {
	Number  int
	Tool    string
	Path    string
	Word    string
	Problem string
}

// wantSteps checks what happened without the server, as far as the ledger knows.
func (o *offline) wantSteps(want ...unsupervised) {
	o.t.Helper()
	if diff := cmp.Diff(want, o.steps()); diff != "" {
		o.t.Error(diff)
	}
}

// steps are the entries of what happened without the server, in their order.
func (o *offline) steps() (all []unsupervised) {
	o.t.Helper()
	var page struct {
		Entries []struct {
			Body struct {
				Number                  int
				Tool, Decision, Problem string
				Event                   struct {
					Payload struct {
						Arguments struct {
							Path string `json:"file_path"`
						}
					}
				}
			}
		}
	}
	o.get("/ops/ledger?kind=step.unsupervised&limit=1000", &page)
	for _, e := range page.Entries {
		all = append(all, unsupervised{e.Body.Number, e.Body.Tool, e.Body.Event.Payload.Arguments.Path, e.Body.Decision, e.Body.Problem})
	}
	return all
}

// alarms are the kinds of open alarms.
func (o *offline) alarms() (kinds []string) {
	o.t.Helper()
	var list struct{ Alarms []struct{ Kind string } }
	o.get("/ops/alarms", &list)
	for _, a := range list.Alarms {
		kinds = append(kinds, a.Kind)
	}
	slices.Sort(kinds)
	return kinds
}

func TestHarmlessToolsGoOnWithoutTheServerAndAreRecordedLater(t *testing.T) {
	t.Parallel()
	o := goOffline(t, offlinePolicy)
	// The list comes with the first call that the server answers, so before that nothing is allowed.
	o.kill()
	if o.use("Read", "/before") {
		t.Error("a hook that never reached the server allowed something")
	}
	o.again()
	if !o.use("Read", "/a") {
		t.Fatal("the server does not allow Read")
	}
	o.kill()
	for _, c := range []struct {
		tool, path string
		want       bool
	}{{"Read", "/b", true}, {"Bash", "/c", false}, {"Grep", "/d", true}, {"read", "/e", false}, {"Write", "/f", false}} {
		if got := o.use(c.tool, c.path); got != c.want {
			t.Errorf("%s is allowed: %v", c.tool, got)
		}
	}
	prompt := hook(t, sample(t, "claude-prompt.json", "hello"), nil, o.args...)
	if prompt.code != 2 || !strings.Contains(prompt.out, "block") {
		t.Errorf("a prompt: %+v", prompt)
	}
	o.again()
	if !o.use("Read", "/g") {
		t.Fatal("the server does not allow Read")
	}
	want := []unsupervised{
		{1, "Read", "/before", "refused", ""},
		{2, "Read", "/b", "allow", ""},
		{3, "Bash", "/c", "refused", ""},
		{4, "Grep", "/d", "allow", ""},
		{5, "read", "/e", "refused", ""},
		{6, "Write", "/f", "refused", ""},
		{7, "", "", "refused", ""},
	}
	o.wantSteps(want...)
	if kinds := o.alarms(); kinds != nil {
		t.Errorf("alarms: %v", kinds)
	}
	// Nothing is sent twice.
	o.use("Read", "/h")
	if got := o.steps(); len(got) != len(want) {
		t.Errorf("%d entries", len(got))
	}
	// What people see of the session.
	var session struct {
		Statistics struct{ Unsupervised int }
		Timeline   []struct {
			Kind         string
			Unsupervised *struct{ Decision string }
		}
	}
	o.get("/ops/sessions/s1?limit=50", &session)
	if session.Statistics.Unsupervised != 6 {
		t.Errorf("the session has %d unsupervised steps", session.Statistics.Unsupervised)
	}
	i := slices.IndexFunc(session.Timeline, func(m struct {
		Kind         string
		Unsupervised *struct{ Decision string }
	},
	) bool {
		return m.Unsupervised != nil && m.Unsupervised.Decision == "allow"
	})
	if i < 0 {
		t.Errorf("the timeline is %+v", session.Timeline)
	}
}

func TestWithoutARuleNothingGoesOnWithoutTheServer(t *testing.T) {
	t.Parallel()
	o := goOffline(t, "version: 1\nrules:\n  - {name: all, on: [action], then: allow}\n")
	if !o.use("Read", "/a") {
		t.Fatal("the server does not allow Read")
	}
	o.kill()
	if o.use("Read", "/b") {
		t.Error("Read is allowed, and no rule says so")
	}
	// Hooks that were installed without --offline keep nothing.
	if got := hook(t, o.input("Read", "/c"), nil, "claude-code", "--data", o.dir); got.code != 2 {
		t.Errorf("%+v", got)
	}
	o.again()
	o.use("Read", "/d")
	o.wantSteps(unsupervised{1, "Read", "/b", "refused", ""})
}

// Clients are killed at random moments, several at once, while the server is away and while it comes back. Every step that
// was answered with yes is in the ledger, in the order of its number, and none twice.
func TestNoStepIsLostWhenClientsAreKilled(t *testing.T) {
	t.Parallel()
	o := goOffline(t, offlinePolicy)
	o.use("Read", "/first")
	answered := map[string]bool{}
	round := func(name string, count int) {
		type outcome struct {
			path string
			yes  bool
		}
		results := make([]outcome, count)
		inputs := make([][]byte, count)
		for i := range inputs {
			results[i].path = fmt.Sprintf("/%s/%d", name, i)
			inputs[i] = o.input("Read", results[i].path)
		}
		testbed.AtOnce(count, func(i int) {
			cmd := fromCLI(t.Context(), append([]string{"hook"}, o.args...)...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			cmd.Env, cmd.Stdin = cleanEnv(), bytes.NewReader(inputs[i])
			var out testbed.Buffer
			cmd.Stdout = &out
			if cmd.Start() != nil {
				return
			}
			if i%4 != 0 {
				timer := time.AfterFunc(time.Duration(rand.IntN(120_000))*time.Microsecond, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
				defer timer.Stop()
			}
			_ = cmd.Wait() // most are killed
			results[i].yes = strings.TrimSpace(out.String()) == "{}"
		})
		for _, r := range results {
			if r.yes {
				answered[r.path] = true
			}
		}
	}
	for i := range 4 {
		o.kill()
		for n := range 3 {
			round(fmt.Sprintf("away-%d-%d", i, n), 12)
		}
		before := len(answered)
		o.again()
		round(fmt.Sprintf("back-%d", i), 8) // these send, and are killed while they do
		for path := range answered {
			if strings.HasPrefix(path, fmt.Sprintf("/back-%d", i)) {
				delete(answered, path) // the server was asked
			}
		}
		if before == 0 {
			t.Fatal("no client answered before it was killed")
		}
	}
	o.use("Read", "/last")
	steps := o.steps()
	found := map[string]int{}
	for i, s := range steps {
		if s.Problem != "" || s.Number != i+1 {
			t.Errorf("entry %d is %+v", i+1, s)
		}
		found[s.Path]++
	}
	for path := range answered {
		if found[path] != 1 {
			t.Errorf("%s was answered with yes, and is recorded %d times", path, found[path])
		}
	}
	for path, n := range found {
		if n > 1 {
			t.Errorf("%s is recorded %d times", path, n)
		}
	}
	if kinds := o.alarms(); kinds != nil {
		t.Errorf("alarms: %v", kinds)
	}
	t.Logf("%d answered, %d recorded", len(answered), len(steps))
}

// An agent that starts its harness as a program, and one that is written in Go, go on as the hooks do.
func TestOtherClientsGoOnWithoutTheServerToo(t *testing.T) {
	t.Parallel()
	read := ahp.Event{Type: ahp.PreAction, SessionID: "s1", Payload: map[string]any{
		"tool_name": "Read", "arguments": map[string]any{"file_path": "/1"},
	}}
	run := ahp.Event{Type: ahp.PreAction, SessionID: "s1", Payload: map[string]any{
		"tool_name": "Bash", "arguments": map[string]any{"command": "ls"},
	}}
	forOther := read
	forOther.Metadata = map[string]any{"user": "somebody"}
	below := read
	below.Depth = 1
	dial := func(o *offline, folder, key string) *ahp.Client {
		s, err := ahp.OpenSpool(folder, key)
		if err != nil {
			t.Fatal(err)
		}
		c, err := ahp.Dial(t.Context(), "unix:"+filepath.Join(o.dir, "ahp.sock"), ahp.WithSpool(s))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for name, open := range map[string]func(o *offline, folder, key string) *ahp.Client{
		"stdio": func(o *offline, folder, key string) *ahp.Client {
			cmd := fromCLI(context.Background(), "harness", "stdio", "--data", o.dir, "--spool", folder, "--trust", key)
			cmd.Env = cleanEnv()
			c, err := ahp.Spawn(cmd)
			if err != nil {
				t.Fatal(err)
			}
			return c
		},
		"Go": dial,
	} {
		testbed.Parallel(t, name, func(t *testing.T) {
			o := goOffline(t, offlinePolicy)
			folder, key := filepath.Join(t.TempDir(), "spool"), strings.TrimSpace(mustRun(t, o.dir, "harness", "key"))
			c := open(o, folder, key)
			defer func() { _ = c.Close() }()
			if _, err := c.Handshake(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := func(c *ahp.Client, e ahp.Event, allowed, alone bool) {
				t.Helper()
				d, _ := c.Decide(t.Context(), e) // a refusal comes with an error
				if d.Allowed() != allowed || (d.Metadata["unsupervised"] == true) != (alone && allowed) {
					t.Errorf("%v: %+v", e.Payload, d)
				}
			}
			want(c, run, true, false) // by default
			o.kill()
			want(c, read, true, true)
			want(c, run, false, true)
			want(c, forOther, false, true)
			want(c, below, false, true)
			all, _ := c.Batch(t.Context(), []ahp.Event{run, read})
			if all[0].Allowed() || !all[1].Allowed() {
				t.Errorf("%+v", all)
			}
			if name == "Go" { // one that never reached the server
				late := open(o, folder, key)
				if h, err := late.Handshake(t.Context()); err != nil || !h.Offline {
					t.Fatalf("%+v %v", h, err)
				}
				want(late, read, true, true)
				_ = late.Close()
			}
			o.again()
			if name == "Go" { // after the end of a stream a client dials again
				c = open(o, folder, key)
				if _, err := c.Handshake(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			want(c, run, true, false)
			var words []string
			for _, s := range o.steps() {
				words = append(words, s.Word+" "+s.Tool+s.Problem)
			}
			expect := []string{"allow Read", "refused Bash", "refused Read", "refused Read", "refused Bash", "allow Read"}
			if name == "Go" {
				expect = append(expect, "allow Read")
			}
			if diff := cmp.Diff(expect, words); diff != "" {
				t.Error(diff)
			}
			if kinds := o.alarms(); kinds != nil {
				t.Errorf("alarms: %v", kinds)
			}
		})
	}
}

// What an agent that may write to the folder can do to its spool is seen.
func TestASpoolThatWasChangedIsAnAlarm(t *testing.T) {
	t.Parallel()
	edit := func(change func(lines []string) []string) func(*testing.T, string) {
		return func(t *testing.T, folder string) {
			file := filepath.Join(folder, "steps")
			text := testbed.Read(t, file)
			lines := change(strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n"))
			for i := range lines {
				lines[i] = strings.TrimSuffix(lines[i], "\n") + "\n"
			}
			testbed.Write(t, file, strings.Join(lines, ""))
		}
	}
	all := []string{"/1", "/2", "/3", "/4"}
	for _, c := range []struct {
		name   string
		change func(*testing.T, string)
		alarm  string
		left   []string // what is recorded all the same
	}{
		{"edited", edit(func(l []string) []string { l[2] = strings.Replace(l[2], "/2", "/9", 1); return l }), "spool_broken", []string{"/1", "/3", "/4"}},
		{"removed", edit(func(l []string) []string { return slices.Delete(l, 2, 3) }), "spool_broken", []string{"/1", "/3", "/4"}},
		{"the beginning removed", edit(func(l []string) []string { return l[3:] }), "spool_broken", []string{"/3", "/4"}},
		{"reordered", edit(func(l []string) []string { l[2], l[3] = l[3], l[2]; return l }), "spool_broken", []string{"/1", "/3", "/2", "/4"}},
		{"made up", edit(func(l []string) []string { return append(l, `{"n":5,"decision":"allow"}`) }), "spool_broken", all},
		{"the file removed", func(t *testing.T, folder string) { remove(t, filepath.Join(folder, "steps")) }, "spool_replaced", nil},
		{"emptied", edit(func([]string) []string { return nil }), "spool_replaced", nil},
		{"the key removed", func(t *testing.T, folder string) { remove(t, filepath.Join(folder, "key")) }, "spool_replaced", nil},
		{"all removed", func(t *testing.T, folder string) {
			if err := os.RemoveAll(folder); err != nil {
				t.Fatal(err)
			}
		}, "spool_replaced", nil},
		{"a link instead", func(t *testing.T, folder string) {
			elsewhere := filepath.Join(t.TempDir(), "elsewhere")
			if err := os.Rename(filepath.Join(folder, "steps"), elsewhere); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(elsewhere, filepath.Join(folder, "steps")); err != nil {
				t.Fatal(err)
			}
		}, "spool_replaced", nil},
	} {
		testbed.Parallel(t, c.name, func(t *testing.T) {
			o := goOfflineListed(t)
			o.kill()
			for _, path := range all {
				if !o.use("Read", path) {
					t.Fatalf("%s is refused", path)
				}
			}
			c.change(t, o.spool)
			o.again()
			o.use("Read", "/online")
			o.use("Read", "/online") // the first one finds out, and the second one says so
			var left []string
			for _, s := range o.steps() {
				left = append(left, s.Path)
			}
			if diff := cmp.Diff(c.left, left); diff != "" {
				t.Error(diff)
			}
			if kinds := o.alarms(); !slices.Contains(kinds, c.alarm) {
				t.Errorf("the alarms are %v, and should have %s", kinds, c.alarm)
			}
			// The spool is good again.
			o.kill()
			if !o.use("Read", "/after") {
				t.Error("the spool cannot be used any more")
			}
			o.again()
			o.use("Read", "/online")
			steps := o.steps()
			if last := steps[len(steps)-1]; last.Path != "/after" || last.Problem != "" {
				t.Errorf("the last step is %+v", last)
			}
		})
	}
}

func remove(t *testing.T, file string) {
	t.Helper()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
}

// A list is what the server signed, for this spool, and until it ends.
func TestAListCannotBeMadeWider(t *testing.T) {
	t.Parallel()
	o := goOfflineListed(t)
	file := filepath.Join(o.spool, "list")
	good := testbed.Read(t, file)
	// Another server's list, for this very spool.
	other := goOffline(t, strings.Replace(offlinePolicy, `"Grep"]`, `"Grep", "TodoRead"]`, 1))
	for _, name := range []string{"key", "steps"} {
		text := testbed.Read(t, filepath.Join(o.spool, name))
		testbed.Write(t, filepath.Join(other.spool, name), text)
	}
	other.use("Read", "/0")
	foreign := testbed.Read(t, filepath.Join(other.spool, "list"))
	if !bytes.Contains(foreign, []byte("TodoRead")) {
		t.Fatalf("%s", foreign)
	}
	o.kill()
	for name, list := range map[string][]byte{
		"wider":             bytes.Replace(good, []byte(`"Grep"`), []byte(`"Bash"`), 1),
		"longer":            bytes.Replace(good, []byte(`"until":"20`), []byte(`"until":"21`), 1),
		"of another server": foreign,
		"none":              []byte("{}"),
		"empty":             nil,
		"twice":             append(slices.Clone(good), good...),
	} {
		testbed.Write(t, file, list)
		for _, tool := range []string{"Read", "Bash", "TodoRead"} {
			if o.use(tool, "/x") {
				t.Errorf("with a list that is %s, %s is allowed", name, tool)
			}
		}
	}
	testbed.Write(t, file, good)
	if !o.use("Read", "/x") || o.use("TodoRead", "/x") {
		t.Error("the list of the server is not taken")
	}
	// A hook with another key of a server, as a client that was told to trust somebody else.
	i := slices.Index(o.args, "--trust") + 1
	o.args = slices.Clone(o.args)
	o.args[i] = other.args[slices.Index(other.args, "--trust")+1]
	if o.use("Read", "/x") {
		t.Error("the list of a server that is not trusted is taken")
	}
}

// The spool of another agent is refused, and seen.
func TestTheSpoolOfAnotherAgentIsRefused(t *testing.T) {
	t.Parallel()
	o := goOfflineListed(t)
	secret := regexp.MustCompile(`rs-amp-[0-9a-z]+`).FindString(mustRun(t, o.dir, "agents", "add", "other"))
	key := filepath.Join(t.TempDir(), "key")
	testbed.Write(t, key, secret)
	o.kill()
	o.use("Read", "/1")
	o.again()
	if !o.use("Read", "/2", "--key-file", key) {
		t.Error("the server does not decide about an agent with the spool of another")
	}
	if steps := o.steps(); steps != nil {
		t.Errorf("the steps of one agent were taken from another: %+v", steps)
	}
	if kinds := o.alarms(); !slices.Contains(kinds, "spool_foreign") {
		t.Errorf("the alarms are %v", kinds)
	}
	o.use("Read", "/3")
	o.wantSteps(unsupervised{1, "Read", "/1", "allow", ""})
}

// An agent that takes the socket away gets what the rule allows, and nothing else.
func TestBlockingTheSocketGetsWhatTheRuleAllows(t *testing.T) {
	t.Parallel()
	o := goOfflineListed(t)
	socket := filepath.Join(o.dir, "ahp.sock")
	if err := os.Rename(socket, socket+".away"); err != nil {
		t.Fatal(err)
	}
	if !o.use("Read", "/1") || o.use("Bash", "/2") || o.use("WebFetch", "/3") {
		t.Error("without the socket other tools are allowed than the rule names")
	}
	if err := os.Rename(socket+".away", socket); err != nil {
		t.Fatal(err)
	}
	o.use("Read", "/4")
	o.wantSteps(unsupervised{1, "Read", "/1", "allow", ""}, unsupervised{2, "Bash", "/2", "refused", ""},
		unsupervised{3, "WebFetch", "/3", "refused", ""})
}
