package secret_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/secret"
	"signalbox/internal/secret/secrettest"
	"signalbox/internal/testbed"
)

// escaped writes every character of a text as an escape of JSON.
func escaped(text string) string {
	var b strings.Builder
	for _, c := range text {
		fmt.Fprintf(&b, `\u%04x`, c)
	}
	return b.String()
}

func quoted(v any) string {
	var b strings.Builder
	out := json.NewEncoder(&b)
	out.SetEscapeHTML(false)
	if err := out.Encode(v); err != nil {
		panic(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// contexts are the places that a credential turns up in.
var contexts = []struct {
	name string
	put  func(text string) string
	line bool // the text stays on a line of its own
}{
	{"alone", func(t string) string { return t }, true},
	{"on a line", func(t string) string { return "before\n" + t + "\nafter" }, true},
	{"at the start", func(t string) string { return t + " and more" }, false},
	{"at the end", func(t string) string { return "it is " + t }, true},
	{"in a command", func(t string) string { return "cd app && echo " + t + " | tee out.txt" }, false},
	{"twice on a line", func(t string) string { return t + " " + t }, false},
	{"beside a key", func(t string) string { return "ghp_" + secrettest.Alnum(36) + " " + t }, true},
	{"in a value of JSON", func(t string) string {
		return quoted(map[string]any{"n": 1.50, "out": []string{"a", t}})
	}, true},
	{"in a name of JSON", func(t string) string { return quoted(map[string]any{t: true}) }, true},
	{"in JSON in a string in JSON", func(t string) string {
		return quoted(map[string]string{"arguments": quoted(map[string]string{"command": t})})
	}, true},
	{"in JSON with escapes", func(t string) string { return `{"a":[1,"` + escaped(t) + `"]}` }, true},
	{"in JSON that was cut", func(t string) string { return `{"out":` + quoted("x "+t) + `,"more":"...` }, true},
	{"in JSON on a line of text", func(t string) string { return "result: " + quoted(map[string]string{"out": t}) }, true},
	{"after an escape in text", func(t string) string { return `printf "a\n` + t + `"` }, true},
	{"in colour", func(t string) string { return "\x1b[32m" + t + "\x1b[0m" }, false},
}

// TestEveryShapeIsFoundWhereverItStands also checks what matters in the end: that nothing of the
// credential is left.
func TestEveryShapeIsFoundWhereverItStands(t *testing.T) {
	r := secret.New([]byte("key"))
	kinds := map[string]bool{}
	for _, s := range secrettest.Samples() {
		kinds[s.Kind] = true
		for _, c := range contexts {
			if s.Line && !c.line {
				continue
			}
			text := c.put(s.Text())
			clean, found := r.Text(text)
			if strings.Contains(clean, s.Secret) || !slices.Contains(found, s.Kind) {
				t.Errorf("%s %s: %v in\n%s\n%s", s.Kind, c.name, found, text, clean)
			}
			if left := longestShared(clean, s.Secret); left > 8 && left > len(s.Secret)/2 {
				t.Errorf("%s %s: %d characters are left in\n%s", s.Kind, c.name, left, clean)
			}
			if kept := strings.Contains(clean, "sha256") || len(s.Before) < 4 || strings.Contains(text, `\u`) ||
				strings.Contains(clean, s.Before[:4]) || strings.Contains(clean, `\"`); !kept {
				t.Errorf("%s %s: more was replaced than the credential in\n%s\n%s", s.Kind, c.name, text, clean)
			}
		}
	}
	if n := len(secrettest.Samples()); n < 60 || len(kinds) < 40 {
		t.Errorf("there are %d shapes of %d kinds, and should be at least 60 of 40", n, len(kinds))
	}
	for kind := range secret.KnownKinds {
		if !kinds[kind] {
			t.Errorf("there is no sample of %s", kind)
		}
	}
}

func TestAKeyThatWasCutIsFound(t *testing.T) {
	whole := secrettest.Block("RSA PRIVATE KEY", "\n")
	for _, c := range []struct{ name, text, want string }{
		{"at the end of the text", "key:\n" + whole[:120], "key:\n<>"},
		{"before other output", whole[:130] + "\n[more]", "<>[more]"},
		{"in source code", `k := "` + strings.ReplaceAll(whole, "\n", `\n" + "`) + `";`, `k := "<>";`},
		{"with headers", strings.Replace(whole, "\n", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,7A\n\n", 1), "<>"},
		{"two of them", whole + "\n" + whole, "<>\n<>"},
	} {
		found := secret.Find(c.text)
		got := c.text
		for _, f := range slices.Backward(found) {
			got = got[:f.Start] + "<>" + got[f.End:]
		}
		if got != c.want {
			t.Errorf("%s: %q is left", c.name, got)
		}
	}
}

// TestAMebibyteOfHostileTextIsReadThrough does not end in reasonable time if reading becomes
// quadratic; BenchmarkHostile shows how far from it we are.
func TestAMebibyteOfHostileTextIsReadThrough(*testing.T) {
	for _, text := range hostile(1 << 20) {
		secret.Find(text)
	}
}

// longestShared is the length of the longest part of a credential that stands in a text.
func longestShared(text, credential string) int {
	longest := 0
	for i := range credential {
		for i+longest < len(credential) && strings.Contains(text, credential[i:i+longest+1]) {
			longest++
		}
	}
	return longest
}

func TestAKeyInAQueryIsFound(t *testing.T) {
	for _, s := range secrettest.Samples() {
		if s.Before != "" || s.Secret != url.QueryEscape(s.Secret) {
			continue
		}
		for _, text := range []string{
			"https://api.example/v1?key=" + s.Secret + "&page=2",
			"next=https%3A%2F%2Fapi.example%3Fkey%3D" + s.Secret,
		} {
			found := secret.Find(text)
			if len(found) != 1 || found[0].Kind != s.Kind || text[found[0].Start:found[0].End] != s.Secret {
				t.Errorf("%s: %v in %s", s.Kind, found, text)
			}
		}
	}
}

func TestOffsetsCoverTheCredentialAndNothingElse(t *testing.T) {
	for _, s := range secrettest.Samples() {
		found := secret.Find(s.Text())
		want := []secret.Finding{{Kind: s.Kind, Start: len(s.Before), End: len(s.Before) + len(s.Secret)}}
		if strings.HasSuffix(s.After, "#top") {
			want[0].End += len("#top") // part of the value for all that we know
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.Text(), diff)
		}
	}
}

func TestHarmlessTextIsLeftAlone(t *testing.T) {
	raw := testbed.Read(t, "testdata/harmless.txt")
	texts := strings.Split(string(raw), "=== ")[1:]
	if len(texts) < 80 {
		t.Errorf("there are %d texts, and should be at least 80", len(texts))
	}
	for _, text := range texts {
		name, text, _ := strings.Cut(text, "\n")
		for _, where := range []struct{ name, text string }{
			{"as it is", text},
			{"in JSON", quoted(map[string]string{"output": text})},
			{"in JSON in a string in JSON", quoted(map[string]string{"a": quoted([]string{text})})},
			{"in lines of a program", fmt.Sprintf("print(%q)", text)},
		} {
			for _, f := range secret.Find(where.text) {
				t.Errorf("%s, %s: %s is %q", name, where.name, f.Kind, where.text[f.Start:f.End])
			}
		}
	}
}

func TestTextWithoutACredentialCostsNoAllocation(t *testing.T) {
	r := secret.New([]byte("key"))
	for _, text := range []string{command, prose(4 << 10), `{"command":"go test ./...","n":1}`} {
		if n := testing.AllocsPerRun(100, func() { r.Text(text) }); n > 0 {
			t.Errorf("%.0f allocations for %.40q", n, text)
		}
	}
}

func TestAMarkIsReportedWithItsKind(t *testing.T) {
	text := "a [secret:github-token:3f9c1a2b7d4e] and password=[secret:password:0123456789ab]"
	want := []secret.Finding{{Kind: "github-token", Start: 2, End: 36}, {Kind: "password", Start: 50, End: 80}}
	if diff := cmp.Diff(want, secret.Find(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, text := range []string{
		"[secret:unknown:3f9c1a2b7d4e]", "[secret:password:3f9c1a2b7d4]", "[secret:password:3F9c1a2b7d4e]", "[secret:",
		"[secret:password:3f9c1a2b7d4e", "[secret:password]",
	} {
		if found := secret.Find(text); found != nil {
			t.Errorf("%s: %v", text, found)
		}
	}
}
