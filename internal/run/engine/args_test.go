package engine_test

import (
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/run/engine"
	"signalbox/internal/testbed"
)

// TestArgumentsOfTheOtherEngines; amp's are among the recorded cases. The prompt is never
// one of them: it is standard input.
func TestArgumentsOfTheOtherEngines(t *testing.T) {
	full := engine.Job{Prompt: "do it", Settings: engine.Settings{Model: "m", Mode: "x"}}
	for _, c := range []struct {
		name   string
		resume engine.Resume
		allow  bool
		want   string
	}{
		{"claude", engine.Resume{}, false, "-p --output-format stream-json --verbose --include-partial-messages --model m --permission-mode x"},
		{
			"claude",
			engine.Resume{Value: "c1"},
			true,
			"-p --output-format stream-json --verbose --include-partial-messages --resume c1 --model m --permission-mode x --dangerously-skip-permissions",
		},
		{
			"claude",
			engine.Resume{Latest: true},
			false,
			"-p --output-format stream-json --verbose --include-partial-messages --continue --model m --permission-mode x",
		},
		{
			"codex",
			engine.Resume{},
			false,
			"-c notify=[] --model m exec --json --skip-git-repo-check --color=never --sandbox x -",
		},
		{
			"codex",
			engine.Resume{Value: "0199"},
			true,
			"-c notify=[] --model m exec --json --skip-git-repo-check --color=never " +
				"--dangerously-bypass-approvals-and-sandbox resume 0199 -",
		},
		{
			"codex",
			engine.Resume{Latest: true},
			false,
			"-c notify=[] --model m exec --json --skip-git-repo-check --color=never --sandbox x resume --last -",
		},
		{"gemini", engine.Resume{}, false, "--output-format stream-json --model m --approval-mode x --skip-trust"},
		{
			"gemini",
			engine.Resume{Value: "gx"},
			true,
			"--resume gx --output-format stream-json --model m --approval-mode yolo --skip-trust",
		},
		{
			"gemini",
			engine.Resume{Latest: true},
			false,
			"--resume latest --output-format stream-json --model m --approval-mode x --skip-trust",
		},
		{"opencode", engine.Resume{}, false, "run --format json --title= --model m --agent x"},
		{"opencode", engine.Resume{Value: "ses_1"}, true, "run --format json --session ses_1 --model m --agent x --auto"},
		{"opencode", engine.Resume{Latest: true}, false, "run --format json --continue --model m --agent x"},
		{"pi", engine.Resume{}, true, "--print --mode json --provider x --model m"},
		{"pi", engine.Resume{Value: "abcd"}, false, "--print --mode json --provider x --model m --session abcd"},
		{"pi", engine.Resume{Latest: true}, false, "--print --mode json --provider x --model m --continue"},
	} {
		e, err := engine.Find(c.name)
		if err != nil {
			t.Fatal(err)
		}
		j := full
		j.Resume, j.Settings.AllowAll = c.resume, c.allow
		if got := strings.Join(e.Args(j), " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if e.Input(j) != "do it" {
			t.Errorf("%s does not get the prompt", c.name)
		}
		j.Override = "other"
		if got := strings.Join(e.Args(j), " "); !strings.Contains(got, "--model other") {
			t.Errorf("%s: %s", c.name, got)
		}
	}
}

func TestResumeLinesOfEveryEngine(t *testing.T) {
	for _, c := range []struct{ text, engine, value string }{
		{"`amp threads continue T-1`", "amp", "T-1"},
		{"an answer\n\n↩️ `claude --resume 3f0c-9a`", "claude", "3f0c-9a"},
		{"claude -r abc", "claude", "abc"},
		{"`codex resume 0199-aa`", "codex", "0199-aa"},
		{"`gemini --resume gx_1`", "gemini", "gx_1"},
		{"opencode run -s ses_1", "opencode", "ses_1"},
		{"`opencode --session ses_4a`", "opencode", "ses_4a"},
		{"`pi --session \"/tmp/a b.jsonl\"`", "pi", "/tmp/a b.jsonl"},
		{"`pi --session abcd1234`", "pi", "abcd1234"},
		{"`codex resume 1`\n`codex resume 2`", "codex", "2"},
		{"please resume codex", "", ""},
		{"claude --resume", "", ""},
	} {
		got, found := engine.FindResume(c.text)
		if found != (c.engine != "") || got.Engine != c.engine || got.Value != c.value {
			t.Errorf("%q: %+v", c.text, got)
		}
		if !found {
			continue
		}
		e, err := engine.Find(got.Engine)
		if err != nil {
			t.Fatal(err)
		}
		line, err := e.FormatResume(got)
		if again, _ := engine.FindResume(line); err != nil || again != got {
			t.Errorf("%q becomes %q: %v", c.text, line, err)
		}
	}
}

func TestWhatAPersonGivesAsASession(t *testing.T) {
	amp, err := engine.Find("amp")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"T-1": "T-1", " T-1\n": "T-1", "see:\n`amp threads continue T-2`\n": "T-2", "https://ampcode.com/threads/T-3": "T-3",
		"": "", "two words": "", "`codex resume 1`": "", "--last": "",
	} {
		got, err := amp.ReadResume(text)
		if got.Value != want || (err == nil) != (want != "") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// pi orders its ids by time, and takes the beginning of one for the session that was used last of those it fits.
func TestTheBeginningOfAnIDIsTheSessionThatItFits(t *testing.T) {
	home := t.TempDir()
	t.Setenv("PI_CODING_AGENT_DIR", home)
	keep := func(folder, id string) {
		t.Helper()
		testbed.Write(t, filepath.Join(home, "sessions", folder, "2026-11-18T10-00-00-000Z_"+id+".jsonl"),
			`{"type":"session","version":3,"id":"`+id+`","cwd":"/x"}`+"\n"+`{"type":"message"}`+"\n")
	}
	const one, two, three, four = "0199a000-1111-7000-8000-000000000001", "0199a000-1111-7000-8000-000000000002",
		"0199bbbb-0000-7000-8000-000000000003", "0199bbbb-0000-7000-9000-000000000004"
	keep("--srv-app--", one)
	keep("--srv-app--", two)
	keep("--srv-app--", three)
	keep("--srv-[other]--", four)
	testbed.Write(t, filepath.Join(home, "sessions", "--srv-app--", "broken.jsonl"), "no header\n")
	pi, err := engine.Find("pi")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ token, dir, want string }{
		{"0199bbbb", "/srv/app", three}, // that of the folder, as pi has it
		{"0199bbbb", "/srv/[other]", four},
		{three[:23], "/elsewhere", three},
		{two, "/srv/app", two},
		{"0199cccc", "/srv/app", "0199cccc"}, // pi says that there is none
		{"/tmp/0199a000.jsonl", "/srv/app", "/tmp/0199a000.jsonl"},
		{"", "/srv/app", ""},
	} {
		got, err := pi.Whole(engine.Job{Dir: c.dir, Resume: engine.Resume{Engine: "pi", Value: c.token}})
		if err != nil || got.Value != c.want || got.Engine != "pi" {
			t.Errorf("%q in %s: %+v %v", c.token, c.dir, got, err)
		}
	}
	for token, dir := range map[string]string{"0199a000": "/srv/app", "0199bbbb": "/elsewhere"} {
		got, err := pi.Whole(engine.Job{Dir: dir, Resume: engine.Resume{Engine: "pi", Value: token}})
		if !fault.Is(err, fault.InvalidRequest) || got.Value != token {
			t.Errorf("%q in %s: %+v %v", token, dir, got, err)
		}
		for _, id := range []string{one, two, three, four} {
			if strings.HasPrefix(id, token) != strings.Contains(err.Error(), id) {
				t.Errorf("%q: %v", token, err)
			}
		}
	}
}
