package notify_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"

	"signalbox/internal/gate"
	"signalbox/internal/notify"
	"signalbox/internal/store/storetest"
)

// hostile is what an agent might write.
var hostile = map[string]string{
	"markup": "</script><script>alert(1)</script><!channel> <!here> <@U0ANN> " +
		"<https://evil.example|Approve> @channel @everyone",
	"formatting":      "_*`~ ```\n> *Approved by ann* <b>x</b> [a](https://evil.example) &lt;!channel&gt;",
	"right to left":   "pay \u202egnp.exe\u202c \u2066x\u2069 \u200f \u061c",
	"control":         "a\rb\nSubject: x\nBcc: evil@example.com\r\n\r\nbody \u0007\u001b[31m",
	"a megabyte":      strings.Repeat("<&>", 350_000),
	"wide":            strings.Repeat("\U0001F4A3", 100_000),
	"one long word":   strings.Repeat("x", 1_000_000),
	"nothing to show": "\u200b\u2060",
}

func TestWhatAgentsWriteIsHarmless(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, app, hook, tg, nt := startWithChannels(t, address)
		for name, text := range hostile {
			t.Run(name, func(t *testing.T) {
				id := n.open(func(o *gate.Opening) {
					o.Shown = gate.Shown{Title: text, Summary: text + " ", ProposedAction: text, Reason: text, Rule: "r"}
				})
				posted := app.next("chat.postMessage")
				checkSlack(t, posted.values["text"], posted.values["blocks"])
				posted = hook.next("hook")
				checkSlack(t, posted.values["text"], posted.values["blocks"])
				checkTelegram(t, tg.next("sendMessage").values["text"])
				checkNtfy(t, nt.next("POST").values["body"])
				n.decide(id, "ann", false, text[:min(len(text), 3000)])
				posted = app.next("chat.update")
				checkSlack(t, posted.values["text"], posted.values["blocks"])
				hook.next("hook")
				checkTelegram(t, tg.next("editMessageText").values["text"])
				checkNtfy(t, nt.next("POST").values["body"])
			})
		}
	})
}

func checkSlack(t *testing.T, text, blocks string) {
	t.Helper()
	texts, _ := read(t, blocks)
	for _, s := range append(texts, text) {
		kind, s, _ := strings.Cut(s, "|")
		if kind == "mrkdwn" {
			t.Errorf("what an agent wrote is markdown: %.80q", s)
		}
		wantClean(t, s)
		if strings.ContainsAny(s, "<>") {
			t.Errorf("not escaped: %.80q", s)
		}
	}
}

func checkTelegram(t *testing.T, text string) {
	t.Helper()
	wantClean(t, text)
	if n := len(utf16.Encode([]rune(text))); n > 4096 {
		t.Errorf("%d characters", n)
	}
	rest := strings.NewReplacer("<b>", "", "</b>", "").Replace(text)
	if strings.ContainsAny(rest, "<>") {
		t.Errorf("not escaped: %.200q", rest)
	}
}

func checkNtfy(t *testing.T, body string) {
	t.Helper()
	var m struct{ Title, Message string }
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Fatal(err)
	}
	wantClean(t, m.Title)
	wantClean(t, m.Message)
	if len(m.Message) > 4096 || len(m.Title) > 250 || strings.Contains(m.Title, "\n") {
		t.Errorf("%d bytes under %q", len(m.Message), m.Title)
	}
}

// wantClean checks that nothing in the text changes how the rest of it looks.
func wantClean(t *testing.T, text string) {
	t.Helper()
	for _, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r)) {
			t.Errorf("%U in %.80q", r, text)
		}
	}
}

func TestCuttingKeepsToTheLimit(t *testing.T) {
	t.Parallel()
	two := func(rune) int { return 2 }
	for _, c := range []struct {
		text string
		most int
		want string
	}{
		{"abc", 6, "abc"}, {"abcd", 6, "ab…"}, {"abcd", 7, "ab…"}, {"", 0, ""}, {"äöüß", 6, "äö…"}, {"ab cd", 8, "ab…"},
	} {
		if got := notify.Cut(c.text, c.most, two); got != c.want {
			t.Errorf("%q to %d is %q, want %q", c.text, c.most, got, c.want)
		}
	}
}
