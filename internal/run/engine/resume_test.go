package engine_test

import (
	"testing"

	"signalbox/internal/run/engine"
)

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
