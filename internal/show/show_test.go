package show_test

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"signalbox/internal/show"
	"signalbox/internal/show/showtest"
)

func TestTextIsShownAsItIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "",
		"Größe: 3 µm → 東京 ✓ אבג":          "Größe: 3 µm → 東京 ✓ אבג",
		"Delete \u202egnp.exe":            "Delete ⟨U+202E⟩gnp.exe",
		"rm\u200b -rf\x1b[2K\r":           "rm⟨U+200B⟩ -rf⟨U+001B⟩[2K⟨U+000D⟩",
		"a\u00a0b\u3000c\u3164d\u2028e":   "a⟨U+00A0⟩b⟨U+3000⟩c⟨U+3164⟩d⟨U+2028⟩e",
		"a\nb\tc":                         "a⟨U+000A⟩b⟨U+0009⟩c",
		"a\xffb\xc0":                      "a⟨byte FF⟩b⟨byte C0⟩",
		"a\ufffdb":                        "a\ufffdb", // somebody wrote that
		"⟨U+0041⟩":                        "⟨U+27E8⟩U+0041⟩",
		"👩\u200d💻 ☎\ufe0f pay\u200dpal":   "👩\u200d💻 ☎\ufe0f pay⟨U+200D⟩pal",
		"e" + strings.Repeat("\u0301", 6): "e\u0301\u0301\u0301\u0301⟨U+0301⟩⟨U+0301⟩",
		"a\ue000\ufdd0\U000e0061":         "a⟨U+E000⟩⟨U+FDD0⟩⟨U+E0061⟩",
	} {
		if got := show.Text(text); got != want {
			t.Errorf("%+q is shown as %s, want %s", text, got, want)
		}
	}
	if got := show.Lines("a\nb\tc\r\nd\r\u2028"); got != "a\nb\tc\nd⟨U+000D⟩⟨U+2028⟩" {
		t.Errorf("%+q", got)
	}
}

var numbers = regexp.MustCompile(`⟨(?:U\+([0-9A-F]{4,6})|byte ([0-9A-F]{2}))⟩`)

// unshown is the text that was shown.
func unshown(shown string) string {
	return numbers.ReplaceAllStringFunc(shown, func(one string) string {
		found := numbers.FindStringSubmatch(one)
		if found[2] != "" {
			b, _ := strconv.ParseUint(found[2], 16, 8)
			return string([]byte{byte(b)})
		}
		r, _ := strconv.ParseUint(found[1], 16, 32)
		return string(rune(r))
	})
}

// unseen reports whether a reader would not see a character.
func unseen(r rune) bool { return !unicode.IsGraphic(r) || r != ' ' && unicode.IsSpace(r) }

// What is shown says exactly what the text is, and has nothing in it that a reader does not see.
func TestLawNothingIsHiddenOrLost(t *testing.T) {
	t.Parallel()
	check := func(text string) string {
		for shown, want := range map[string]string{
			show.Text(text): text, show.Lines(text): strings.ReplaceAll(text, "\r\n", "\n"),
		} {
			if got := unshown(shown); got != want {
				return shown
			}
			if left := numbers.ReplaceAllString(shown, ""); strings.Contains(left, "⟨") ||
				strings.ContainsFunc(strings.NewReplacer("\n", "", "\t", "", "\u200d", "", "\ufe0f", "").Replace(left), unseen) {
				return shown
			}
		}
		if strings.ContainsAny(show.Text(text), "\n\t\r\x1b") {
			return show.Text(text)
		}
		return ""
	}
	for _, h := range showtest.All(t) {
		if bad := check(h.Text); bad != "" {
			t.Errorf("%s is shown as %+q", h.Name, bad)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) })
		text := rapid.OneOf(rapid.String(), bytes,
			rapid.StringOf(rapid.RuneFrom(nil, unicode.Cf, unicode.Zs, unicode.Mn, unicode.So))).Draw(t, "text")
		if bad := check(text); bad != "" {
			t.Fatalf("%+q is shown as %+q", text, bad)
		}
	})
}

// JSON stays the same document, and can be printed.
func TestLawJSONStaysTheSame(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.OneOf(rapid.Rune(), rapid.RuneFrom(nil, unicode.Cf, unicode.Zs, unicode.Co))
		text := rapid.StringOf(runes).Draw(t, "text")
		document, err := json.Marshal(map[string]string{"text": text})
		if err != nil {
			t.Fatal(err)
		}
		shown := show.JSON(document)
		var back map[string]string
		if err := json.Unmarshal(shown, &back); err != nil || back["text"] != strings.ToValidUTF8(text, "\ufffd") {
			t.Fatalf("%s became %s (%v)", document, shown, err)
		}
		if strings.ContainsFunc(string(shown), unseen) {
			t.Fatalf("%+q is not escaped", shown)
		}
	})
}

func BenchmarkText(b *testing.B) {
	text := strings.Repeat("What an agent says, in plain words. ", 1000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		show.Text(text)
	}
}
