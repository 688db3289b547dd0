package hook

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/cli/command"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
	"signalbox/internal/wire/wiretest"
)

const aboutToRun = `{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash",` +
	`"tool_input":{"command":"make test"}}`

// harnessThatSays shakes hands, and answers everything else with a text in which <id> stands for
// the request's.
func harnessThatSays(t *testing.T, text string) string {
	t.Helper()
	return testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var in struct {
			ID     string `json:"id"`
			Method string `json:"method"`
		}
		if err := wire.UnmarshalPart(body, &in); err != nil {
			t.Error(err)
		}
		answer := text
		if in.Method == "ahp/handshake" {
			answer = `{"jsonrpc":"2.0","id":"<id>","result":{"protocol_version":"2.4","harness_info":{"name":"n",` +
				`"version":"v","capabilities":[]}}}`
		}
		_, _ = io.WriteString(w, strings.ReplaceAll(answer, "<id>", in.ID))
	}))
}

func TestAnAnswerIsReadAsEveryReaderOfOursReadsIt(t *testing.T) {
	words := wiretest.Words{
		Name: "result", Yes: `{"decision":"allow"}`, No: `{"decision":"block","reason":"r"}`,
		Rest: `,"jsonrpc":"2.0","id":"<id>"`,
	}
	for _, a := range wiretest.Answers(words) {
		testbed.Parallel(t, a.Name, func(t *testing.T) {
			s := harnessThatSays(t, a.Text)
			f := asker{App: &command.App{Server: s}}
			for _, tool := range []string{"claude-code", "codex"} {
				out := f.answer(t.Context(), Named(tool), []byte(aboutToRun), func(string) string { return "" })
				if yes := out.Code == CodeGoOn && string(out.Stdout) == "{}\n"; yes != a.Good {
					t.Errorf("%q is for %s: %d %s %s", a.Text, tool, out.Code, out.Stdout, out.Stderr)
				}
			}
		})
	}
}

// Without the empty input the CLI would take the yes, and its own input.
func TestAnInputThatThePolicyEmptiesIsToldAsEmpty(t *testing.T) {
	for tool, member := range map[string]string{"claude-code": `"updatedInput":{}`, "codex": `"updatedInput":{}`} {
		c, err := Named(tool).Read([]byte(aboutToRun), func(string) string { return "" })
		if err != nil {
			t.Fatal(err)
		}
		out := c.Answer(ahp.Decision{Word: "modify", ModifiedPayload: []byte(`{"tool_name":"Bash","arguments":{}}`)})
		if out.Code != CodeGoOn || !strings.Contains(string(out.Stdout), member) {
			t.Errorf("%s: %d %s", tool, out.Code, out.Stdout)
		}
	}
}

func TestWhatACLISaysTwiceIsRefused(t *testing.T) {
	text := strings.Replace(aboutToRun, `{"session_id"`, `{"tool_input":{"command":"rm -rf /"},"session_id"`, 1)
	f := asker{App: &command.App{Server: "http://127.0.0.1:1"}, wait: time.Second}
	if out := f.answer(t.Context(), Named("claude-code"), []byte(text), func(string) string {
		return ""
	}); out.Code != CodeRefuse {
		t.Errorf("%+v", out)
	}
}

// TestAFolderThatAModelChoseIsNotWhereItWorks: Codex and Claude Code tell the folder of the call.
func TestAFolderThatAModelChoseIsNotWhereItWorks(t *testing.T) {
	home, link := t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(home, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, tool, cwd, want string }{
		{
			"codex", "Bash", "/srv/other",
			`{"arguments":{"command":"x","workdir":"/srv/other"},"working_directory":"` + home + `"`,
		},
		{"codex", "Bash", link, `{"arguments":{"command":"x"},"working_directory":"` + link + `"`},
		{"codex", "apply_patch", "/srv/other", `{"arguments":{"command":"x"},"working_directory":"/srv/other"`},
		{
			"claude-code", "Bash", "/srv/other",
			`{"arguments":{"command":"x","workdir":"/srv/other"},"working_directory":"` + home + `"`,
		},
		{"claude-code", "Write", "/srv/other", `{"arguments":{"command":"x"},"working_directory":"` + home + `"`},
	} {
		text, err := wire.Marshal(map[string]any{
			"session_id": "s", "hook_event_name": "PreToolUse", "tool_name": c.tool, "cwd": c.cwd,
			"tool_input": map[string]any{"command": "x"},
		})
		if err != nil {
			t.Fatal(err)
		}
		call, err := Named(c.name).Read(text, func(string) string { return home })
		if err != nil {
			t.Fatal(err)
		}
		delete(call.Event.Payload.(payload), "tool_name")
		got, err := wire.Marshal(call.Event.Payload)
		if err != nil || string(got) != c.want+"}" {
			t.Errorf("%s %s: %v %s", c.name, c.tool, err, got)
		}
	}
}

func TestAPolicyCanChangeACallInAFolderButNotTheFolder(t *testing.T) {
	text := strings.Replace(aboutToRun, `"tool_name"`, `"cwd":"/srv/other","tool_name"`, 1)
	call, err := Named("codex").Read([]byte(text), func(string) string { return t.TempDir() })
	if err != nil {
		t.Fatal(err)
	}
	sent, err := wire.Marshal(call.Event.Payload)
	if err != nil {
		t.Fatal(err)
	}
	for change, want := range map[[2]string]string{
		{"x", "x"}:                  "{}",
		{"make test", "make clean"}: `"permissionDecision":"allow","updatedInput":{"command":"make clean"}`,
		{"/srv/other", "/srv/app"}:  `"permissionDecision":"deny"`,
	} {
		modified := strings.ReplaceAll(string(sent), change[0], change[1])
		out := call.Answer(ahp.Decision{Word: "modify", ModifiedPayload: []byte(modified)})
		if !strings.Contains(string(out.Stdout), want) {
			t.Errorf("%s: %s", change, out.Stdout)
		}
	}
}

func TestTheBranchIsThatOfTheFolder(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		testbed.Write(t, filepath.Join(at, path), text)
	}
	commit := strings.Repeat("0a", 20)
	write("shop/.git/HEAD", "ref: refs/heads/feature/prices\n")
	write("shop/deep/er/x", "")
	write("shop/.git/worktrees/w/HEAD", "ref: refs/heads/hotfix\n")
	write("relative/.git", "gitdir: ../shop/.git/worktrees/w\n")
	write("absolute/.git", "gitdir: "+at+"/shop/.git/worktrees/w\n")
	write("detached/.git/HEAD", commit+"\n")
	write("other/.git/HEAD", "root:x:0:0:root:/\n")
	write("long/.git/HEAD", "ref: refs/heads/"+strings.Repeat("x", 1<<20))
	write("circle/.git", "gitdir: .\n")
	for _, name := range []string{"pipe/.git", "piped/.git/HEAD"} {
		testbed.Folder(t, filepath.Dir(filepath.Join(at, name)))
		if err := syscall.Mkfifo(filepath.Join(at, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for folder, want := range map[string]string{
		"shop": "feature/prices", "shop/deep/er": "feature/prices", "relative": "hotfix", "absolute": "hotfix",
		"detached": "none, at the commit " + commit, "other": "", "pipe": "", "piped": "", "circle": "", "missing": "",
		"long": strings.Repeat("x", maxLine-len("ref: refs/heads/")),
	} {
		if got := branchOf(filepath.Join(at, folder)); got != want {
			t.Errorf("%s is on %q, want %q", folder, got, want)
		}
	}
	if got := branchOf("shop"); got != "" {
		t.Errorf("a folder that depends on ours is on %q", got)
	}
}
