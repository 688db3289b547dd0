package hook

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/client/ahp"
	"signalbox/internal/testbed"
)

const within = 20 * time.Second

func ourCommand(t *Tool) string {
	return t.Command("/opt/Signal Box/signalbox", "--data", "/it's/here")
}

// put writes a file of settings and returns its path.
func put(t interface{ Fatal(...any) }, dir, text string) string {
	file := filepath.Join(dir, "settings.json")
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return file
}

// data is what a text of settings says.
func data(t interface{ Fatalf(string, ...any) }, text []byte) map[string]any {
	// Strings stay as they are; comments and commas before an end go.
	plain := regexp.MustCompile(`("(?:\\.|[^"\\])*")|//[^\n]*|/\*(?s:.*?)\*/`).ReplaceAll(text, []byte("$1"))
	plain = regexp.MustCompile(`("(?:\\.|[^"\\])*")|,(\s*[}\]])`).ReplaceAll(plain, []byte("$1$2"))
	var v map[string]any
	if len(bytes.TrimSpace(plain)) == 0 {
		return map[string]any{}
	}
	if err := json.Unmarshal(plain, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

var shapes = map[string]string{
	"empty":            "",
	"blank":            " \n",
	"nothing":          "{}",
	"nothing, lines":   "{\n}\n",
	"one line":         `{"model":"opus","permissions":{"allow":["Bash(ls:*)"]}}`,
	"no last line end": "{\n    \"a\": [1, 2,3],\n    \"b\": \"}{\\\"\"\n}",
	"tabs":             "{\n\t\"z\": 1.50,\n\t\"a\": \"\\u00e9\"\n}\n",
	"windows":          "{\r\n  \"a\": 1\r\n}\r\n",
	"empty hooks":      "{\n  \"hooks\": {}, \"x\": null\n}\n",
	"other hooks": `{
  "hooks": {
    "PreToolUse": [
      {"matcher": "Bash", "hooks": [{"type": "command", "command": "mine.sh"}]}
    ],
    "BeforeTool": [ ],
    "Notification": [{"hooks": []}]
  },
  "last": true
}
`,
	"other permissions": `{"amp.permissions": [{"tool": "Bash", "action": "ask"}], "amp.url": "https://ampcode.com/"}`,
	"odd margins":       "{ \"a\":1,\n\t   \"b\" : [ ]\t,\"c\":{\"a\":{}}\n      }\n\n",
	"no permissions":    "{\n  \"amp.permissions\": []\n}\n",
}

var withComments = map[string]string{
	"comments": `// head
{
  // about a
  "a": 1, // after a
  /* hooks: { */
  "hooks": {
    "BeforeTool": [
      {"hooks": [{"type": "command", "command": "mine // not a comment"}]}, // theirs
    ],
  },
  "amp.permissions": [
    // first
    {"tool": "Bash", "action": "ask"}, // theirs
  ],
}
// tail`,
	"comments, windows": "// h\r\n{\r\n\t\"a\": 1 /* b */, // c\r\n\t// d\r\n}\r\n// e",
	"only a comment":    "{\n  // nothing yet\n}\n",
}

func TestInstallAndUninstallGiveTheSameBytes(t *testing.T) {
	for _, tool := range Tools {
		all := map[string]string{}
		for name, text := range shapes {
			all[name] = text
		}
		for name, text := range withComments {
			if tool.settings.comments {
				all[name] = text
			}
		}
		for name, text := range all {
			t.Run(tool.Name+"/"+name, func(t *testing.T) {
				file := put(t, t.TempDir(), text)
				if changed, err := tool.Install(file, ourCommand(tool), within); err != nil || !changed {
					t.Fatal(changed, err)
				}
				installed := testbed.Read(t, file)
				wantInstalled(t, tool, text, installed)
				if changed, err := tool.Install(file, ourCommand(tool), within); err != nil || changed {
					t.Error("a second time", changed, err)
				}
				// Another place of the program takes the place of the first.
				if _, err := tool.Install(file, tool.Command("/usr/bin/signalbox", "--server", "https://x"), within); err != nil {
					t.Fatal(err)
				}
				if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o640 {
					t.Error(info.Mode(), err)
				}
				if changed, err := tool.Uninstall(file); err != nil || !changed {
					t.Fatal(changed, err)
				}
				wantOnly(t, file, text)
				if changed, err := tool.Uninstall(file); err != nil || changed {
					t.Error("a second time", changed, err)
				}
			})
		}
	}
}

// wantOnly wants a folder with nothing but a file of this text.
func wantOnly(t *testing.T, file, text string) {
	t.Helper()
	if diff := cmp.Diff(text, string(testbed.Read(t, file))); diff != "" {
		t.Error(diff)
	}
	if left, _ := os.ReadDir(filepath.Dir(file)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// wantInstalled wants everything that was there, and one more of each.
func wantInstalled(t *testing.T, tool *Tool, before string, after []byte) {
	t.Helper()
	was, is := data(t, []byte(before)), data(t, after)
	if tool.delegate {
		rules, _ := is[permissionsKey].([]any)
		first, _ := rules[0].(map[string]any)
		if first["action"] != "delegate" || first["tool"] != "*" || filepath.Base(first["to"].(string)) != DelegateFile {
			t.Errorf("%v", rules)
		}
		is[permissionsKey] = rules[1:]
		if was[permissionsKey] == nil {
			was[permissionsKey] = []any{}
		}
	} else {
		hooks, _ := is["hooks"].(map[string]any)
		theirs, _ := was["hooks"].(map[string]any)
		if theirs == nil {
			theirs = map[string]any{}
			was["hooks"] = theirs
		}
		for _, e := range tool.events {
			list, _ := hooks[e.name].([]any)
			if len(list) == 0 ||
				!strings.Contains(string(mustJSON(list[len(list)-1])), `hook `+tool.Name+` --data '/it'\\''s/here'`) {
				t.Fatalf("%s: %s", e.name, mustJSON(list))
			}
			hooks[e.name] = list[:len(list)-1]
			if theirs[e.name] == nil {
				theirs[e.name] = []any{}
			}
		}
	}
	if diff := cmp.Diff(was, is); diff != "" {
		t.Errorf("something else changed: %s\n%s", diff, after)
	}
	for _, comment := range regexp.MustCompile(`// \w.*|/\*.*?\*/`).FindAllString(before, -1) {
		if !bytes.Contains(after, []byte(comment)) {
			t.Errorf("the comment %q is gone", comment)
		}
	}
}

func mustJSON(v any) []byte {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v)
	return out.Bytes()
}

func TestSettingsThatWereNotThereAreGoneAgain(t *testing.T) {
	for _, tool := range Tools {
		file := filepath.Join(t.TempDir(), "new", "settings.json")
		if _, err := tool.Install(file, ourCommand(tool), within); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Error(info.Mode(), err)
		}
		if _, err := tool.Uninstall(file); err != nil {
			t.Fatal(err)
		}
		if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 0 {
			t.Errorf("%s: %v %v", tool.Name, left, err)
		}
		if changed, err := tool.Uninstall(file); err != nil || changed {
			t.Error(changed, err)
		}
	}
}

func TestWhatOthersAddedSinceStays(t *testing.T) {
	for _, tool := range Tools {
		for name, text := range shapes {
			file := put(t, t.TempDir(), text)
			if _, err := tool.Install(file, ourCommand(tool), within); err != nil {
				t.Fatal(err)
			}
			installed := testbed.Read(t, file)
			changed := append([]byte(`{"added": {"hooks": []},`), bytes.TrimPrefix(installed, []byte("{"))...)
			testbed.Write(t, file, changed)
			if _, err := tool.Uninstall(file); err != nil {
				t.Fatal(err)
			}
			got := testbed.Read(t, file)
			want, is := data(t, []byte(text)), data(t, got)
			want["added"] = map[string]any{"hooks": []any{}}
			if diff := cmp.Diff(withoutEmpty(want), withoutEmpty(is)); diff != "" {
				t.Errorf("%s, %s: %s\n%s", tool.Name, name, diff, got)
			}
			if bytes.Contains(got, []byte("Signal Box")) || bytes.Contains(got, []byte(DelegateFile)) {
				t.Errorf("%s, %s: %s", tool.Name, name, got)
			}
		}
	}
}

// withoutEmpty drops what may be empty or not there at all.
func withoutEmpty(settings map[string]any) map[string]any {
	hooks, _ := settings["hooks"].(map[string]any)
	for name, list := range hooks {
		if l, ok := list.([]any); ok && len(l) == 0 {
			delete(hooks, name)
		}
	}
	if len(hooks) == 0 {
		delete(settings, "hooks")
	}
	if l, ok := settings[permissionsKey].([]any); ok && len(l) == 0 {
		delete(settings, permissionsKey)
	}
	return settings
}

func TestAHandlerInAGroupOfOthersIsTakenOutAlone(t *testing.T) {
	tool := Named("claude-code")
	text := `{"hooks":{"PreToolUse":[{"hooks":[{"command":"a"},{"command":"x hook claude-code --data /d"},` +
		`{"command":"b"}]}]}}`
	got, err := tool.Remove([]byte(text))
	if want := `{"hooks":{"PreToolUse":[{"hooks":[{"command":"a"},{"command":"b"}]}]}}`; err != nil ||
		string(got) != want {
		t.Errorf("%s %v", got, err)
	}
}

func TestSettingsThatAreMalformedAreLeftAlone(t *testing.T) {
	for _, tool := range Tools {
		for _, text := range []string{
			"{", "[]", `"x"`, `{"a":}`, `{"a" 1}`, `{"a":1 "b":2}`, `{"a":1}}`, "{a:1}", `{"a":01}`, `{"a":"`, `{"a":1,"a":2}`,
			"\xef\xbb\xbf{}",
			`{"hooks":[],"amp.permissions":{}}`, `{"hooks":{"PreToolUse":{},"BeforeTool":7},"amp.permissions":7}`, `{"a":/* `,
			strings.Repeat("[", 5000), `{"b":{"a":1,"\u0061":2}}`, strings.Repeat("[", maxBrackets+1),
		} {
			file := put(t, t.TempDir(), text)
			if _, err := tool.Install(file, ourCommand(tool), within); err == nil {
				t.Errorf("%s took %s", tool.Name, text)
			}
			wantOnly(t, file, text)
		}
		if !tool.settings.comments {
			for _, text := range []string{"{} // c", `{"a":1,}`} {
				file := put(t, t.TempDir(), text)
				if _, err := tool.Install(file, ourCommand(tool), within); err == nil {
					t.Errorf("%s took %s", tool.Name, text)
				}
				wantOnly(t, file, text)
			}
		}
	}
}

func TestALinkStaysALink(t *testing.T) {
	tool, dir := Named("claude-code"), t.TempDir()
	file := put(t, t.TempDir(), "{}")
	link := filepath.Join(dir, "settings.json")
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	if _, err := tool.Install(link, ourCommand(tool), within); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Error(info, err)
	}
	if _, err := tool.Uninstall(link); err != nil {
		t.Fatal(err)
	}
	wantOnly(t, file, "{}")
	_ = os.Remove(file)
	if _, err := tool.Install(link, ourCommand(tool), within); err == nil {
		t.Error("a link to nothing was followed")
	}
}

// Whatever settings look like, what is put in comes out again, and nothing else changes.
func TestWhateverSettingsLookLikeTheyAreRestored(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		tool := rapid.SampledFrom(Tools).Draw(t, "tool")
		text := settingsText(t, tool.settings.comments)
		file := put(t, dir, text)
		if _, err := tool.Install(file, ourCommand(tool), within); err != nil {
			t.Fatal(text, err)
		}
		installed, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parse(installed, tool.settings.comments); err != nil {
			t.Fatalf("%v: %s", err, installed)
		}
		memory := memoryFile(file)
		if rapid.Bool().Draw(t, "forgotten") {
			_ = os.Remove(memory)
			if _, err := tool.Uninstall(file); err != nil {
				t.Fatal(err)
			}
			got := []byte(testbed.ReadAny(file))
			if diff := cmp.Diff(withoutEmpty(data(t, []byte(text))), withoutEmpty(data(t, got))); diff != "" {
				t.Fatalf("%s\n%s\n%s", diff, text, got)
			}
			return
		}
		if _, err := tool.Uninstall(file); err != nil {
			t.Fatal(err)
		}
		if got := testbed.ReadAny(file); got != text {
			t.Fatalf("%q became %q", text, got)
		}
	})
}

// settingsText draws an object, with any spaces and, where they are allowed, comments.
func settingsText(t *rapid.T, comments bool) string {
	spaces := []string{"", " ", "\n", "\n  ", "\t", "\r\n"}
	if comments {
		spaces = append(spaces, "\n// c, }\n", "/* [ , */")
	}
	space := func() string { return rapid.SampledFrom(spaces).Draw(t, "space") }
	var value func(depth int) string
	list := func(open, end string, member func(i int) string) string {
		var b strings.Builder
		b.WriteString(open + space())
		n := rapid.IntRange(0, 3).Draw(t, "items")
		for i := range n {
			b.WriteString(member(i) + space())
			if i < n-1 || comments && rapid.Bool().Draw(t, "comma") {
				b.WriteString("," + space())
			}
		}
		return b.String() + end
	}
	value = func(depth int) string {
		kind := rapid.IntRange(0, 4).Draw(t, "kind")
		switch {
		case kind == 0 && depth < 3:
			return list("{", "}", func(i int) string {
				return `"k` + string(rune('a'+i)) + `"` + space() + ":" + value(depth+1)
			})
		case kind == 1 && depth < 3:
			return list("[", "]", func(int) string { return value(depth + 1) })
		}
		return rapid.SampledFrom([]string{"1", "-2.50e3", "true", "null", `"a // b \" } ,"`, `"\\"`}).Draw(t, "value")
	}
	groups := func(int) string { return `{"hooks":` + space() + `[{"command":"theirs"}]}` }
	names := []string{"PreToolUse", "BeforeTool", "Stop"}
	return list("{", "}", func(i int) string {
		switch i {
		case 0:
			return `"hooks":` + list("{", "}", func(j int) string { return `"` + names[j] + `":` + list("[", "]", groups) })
		case 1:
			return `"amp.permissions"` + space() + ":" + list("[", "]", func(int) string {
				return `{"tool":"Bash","action":"ask"}`
			})
		}
		return `"x":` + value(1)
	})
}

func FuzzSettings(f *testing.F) {
	for _, text := range shapes {
		f.Add([]byte(text))
	}
	for _, text := range withComments {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, tool := range Tools {
			after, err := tool.Add(text, Entry{Command: "x hook " + tool.Name + " --data " + DelegateFile, Within: within})
			if err != nil {
				continue
			}
			if _, err := tool.read(after); err != nil {
				t.Fatalf("%q became %q: %v", text, after, err)
			}
			if tool.settings.comments == false && len(bytes.TrimSpace(text)) > 0 && !json.Valid(text) {
				t.Fatalf("%q was taken for JSON", text)
			}
		}
	})
}

// A hook whose program is gone has to deny where it is asked, and must not where it reports: the exit code of
// a denial would keep a session from ending. Hooks of an older version are replaced.
func TestHooksThatAskDenyWhenTheirProgramFails(t *testing.T) {
	for _, tool := range Tools {
		if tool.delegate {
			continue
		}
		file := filepath.Join(t.TempDir(), "settings.json")
		old := `{"hooks":{"` + tool.events[0].name + `":[{"hooks":[{"type":"command","command":"` +
			tool.Command("/old/signalbox", "--data", "/d") + `"}]}]}}`
		testbed.Write(t, file, old)
		open := func() bool {
			text := testbed.Read(t, file)
			root, err := tool.read(text)
			return err != nil || tool.isOpen(file, text, root)
		}
		if !open() {
			t.Errorf("hooks of an earlier version of %s are not found", tool.Name)
		}
		if _, err := tool.Install(file, ourCommand(tool), within); err != nil {
			t.Fatal(err)
		}
		if open() {
			t.Errorf("hooks of %s are open", tool.Name)
		}
		text := testbed.Read(t, file)
		if strings.Contains(string(text), "/old/") {
			t.Errorf("%s", text)
		}
		var settings struct {
			Hooks map[string][]struct{ Hooks []struct{ Command string } }
		}
		if err := json.Unmarshal(text, &settings); err != nil {
			t.Fatal(err)
		}
		for _, e := range tool.events {
			asks := e.becomes == ahp.PreAction || e.becomes == ahp.PrePrompt
			groups := settings.Hooks[e.name]
			if len(groups) != 1 || strings.HasSuffix(groups[0].Hooks[0].Command, " || exit 2") != asks ||
				strings.HasPrefix(groups[0].Hooks[0].Command, "timeout -s KILL 16 ") != asks {
				t.Errorf("%s, %s: %+v", tool.Name, e.name, groups)
			}
		}
	}
}

// What a CLI runs ends with the code of a denial, whatever becomes of the program.
func TestAHookThatFailsIsADenial(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	for name, script := range map[string]string{
		"gone": "", "crashes": "kill -SEGV $$", "fails": "exit 1", "stops": "kill -STOP $$", "hangs": "sleep 600",
	} {
		_ = os.Remove(program)
		if script != "" {
			testbed.Script(t, program, script+"\n")
		}
		command := Entry{Command: Named("codex").Command(program, "--data", "/d"), Within: denyMargin + time.Second}.orDeny()
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		if err := cmd.Run(); cmd.ProcessState.ExitCode() != CodeRefuse {
			t.Errorf("a program that %s: %v", name, err)
		}
	}
}
