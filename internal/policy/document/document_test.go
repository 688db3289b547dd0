package document_test

import (
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/fault"
	"signalbox/internal/policy/document"
)

// styles are the ways to write a text of several lines in YAML.
var styles = map[string]func(lines []string) string{
	"plain": func(lines []string) string { return "k: " + strings.Join(lines, "\n  ") + "\n" },
	"single": func(lines []string) string {
		return "k: '" + strings.ReplaceAll(strings.Join(lines, "\n  "), "'", "''") + "'\n"
	},
	"double":  func(lines []string) string { return `k: "` + escaped(strings.Join(lines, "\n\n  ")) + "\"\n" },
	"literal": func(lines []string) string { return "k: |\n   " + strings.Join(lines, "\n     ") + "\n" },
	"folded": func(lines []string) string {
		return "# first\nk: >- # why\n\n    " + strings.Join(lines, "\n\n    ") + "\n"
	},
}

func escaped(s string) string {
	return strings.NewReplacer(`"`, `\"`, `\`, `\\`, "☂", `\u2602`, "é", `\xe9`).Replace(s)
}

var anyLine = rapid.StringMatching(`[a-z(][a-z"'\\☂é(). ]{0,12}[a-z)]`)

func TestLawAPlaceInsideATextIsThatOfTheSameCharacter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom([]string{"plain", "single", "double", "literal", "folded"}).Draw(t, "style")
		source := styles[name](rapid.SliceOfN(anyLine, 1, 4).Draw(t, "lines"))
		var r document.Reader
		doc := r.Read([]byte(source), "text")
		if doc == nil {
			t.Fatalf("%v\n%s", r.Fault(), source)
		}
		f, _ := r.Mapping(doc, "The text", "k")
		lines := strings.Split(source, "\n")
		for i, want := range []rune(f["k"].Value) {
			at := r.Inside(f["k"], i)
			if unicode.IsSpace(want) {
				continue // the place after what stands before it, which may be a line's end
			}
			got := []rune(lines[at.Line-1])[at.Column-1:]
			if got[0] == '\\' && name == "double" {
				got = []rune(strings.NewReplacer(`\"`, `"`, `\\`, `\`, `\u2602`, "☂", `\xe9`, "é").Replace(string(got)))
			}
			if got[0] != want {
				t.Fatalf("character %d is %q, and at %v stands %q\n%s", i, want, at, got[0], source)
			}
		}
		if end := r.Inside(f["k"], len(f["k"].Value)); end.Line > len(lines) || end.Line < 1 {
			t.Errorf("the end is at %v", end)
		}
	})
}

func TestALengthOfTimeIsReadAndWrittenAsPeopleDo(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90s": 90 * time.Second, "10m": 10 * time.Minute, "24h": 24 * time.Hour, "7d": 7 * 24 * time.Hour,
		"1h30m": 90 * time.Minute, "1.5h": 90 * time.Minute,
		"": 0, "0s": 0, "0d": 0, "-1m": 0, "d": 0, "1w": 0, "10": 0, "99999d": 0, "1d2h": 0,
	} {
		if got, ok := document.ParseDuration(text); ok != (want > 0) || (ok && got != want) {
			t.Errorf("%q is %s, %v", text, got, ok)
		}
	}
	for d, want := range map[time.Duration]string{
		90 * time.Second: "90s", time.Hour: "1h", 48 * time.Hour: "2d",
		90 * time.Minute: "90m", 1500 * time.Millisecond: "1.5s",
	} {
		if diff := cmp.Diff(want, document.FormatDuration(d)); diff != "" {
			t.Error(diff)
		}
	}
}

func TestWhatIsWrongIsToldInTheOrderOfTheSource(t *testing.T) {
	var r document.Reader
	if r.Fault() != nil {
		t.Error("nothing was wrong")
	}
	r.Add(document.Position{Line: 3, Column: 1}, "", "Third.")
	r.Add(document.Position{Line: 1, Column: 9}, "Do it.", "The %s.", "second")
	r.Add(document.Position{Line: 1, Column: 2}, "", "First.")
	err := r.Fault()
	want := []document.Problem{{1, 2, "First.", ""}, {1, 9, "The second.", "Do it."}, {3, 1, "Third.", ""}}
	if diff := cmp.Diff(want, document.Problems(err)); diff != "" || !fault.Is(err, fault.InvalidPolicy) {
		t.Errorf("%v: %s", err, diff)
	}
	if diff := cmp.Diff("Line 1, column 2: First. (And 2 more, in details.problems.)",
		fault.From(err).Message); diff != "" {
		t.Error(diff)
	}
}

func TestAValueIsWhatItWouldBeInJSON(t *testing.T) {
	var r document.Reader
	doc := r.Read([]byte("{a: 1, b: 1.5, c: true, d: null, e: [x, '1'], f: 2026-05-01, g: 18446744073709551615, h: 0x10}"),
		"text")
	want := map[string]any{
		"a": int64(1), "b": 1.5, "c": true, "d": nil, "e": []any{"x", "1"}, "f": "2026-05-01",
		"g": float64(1 << 64), "h": int64(16),
	}
	if diff := cmp.Diff(want, r.Value(doc, "text")); diff != "" || r.Fault() != nil {
		t.Errorf("%v: %s", r.Fault(), diff)
	}
}
