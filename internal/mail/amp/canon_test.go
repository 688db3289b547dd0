package amp

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/testbed"
)

func TestObjectsAreOrderedAsEachClientOrdersThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, in, sorted, script string
	}{
		{"numbers as names", `{"a":1,"10":2,"2":3}`, `{"10":2,"2":3,"a":1}`, `{"2":3,"10":2,"a":1}`},
		{"beyond the basic plane", `{"😀":1,"｡":2}`, `{"｡":2,"😀":1}`, `{"😀":1,"｡":2}`},
		{
			"all the way down", `{"z":[{"b":1,"a":2}],"a":{"y":1,"x":2}}`, `{"a":{"x":2,"y":1},"z":[{"a":2,"b":1}]}`,
			`{"a":{"x":2,"y":1},"z":[{"a":2,"b":1}]}`,
		},
		{"white space goes", "{\n  \"b\" : [ 1 , 2 ] ,\t\"a\" : { } }", `{"a":{},"b":[1,2]}`, `{"a":{},"b":[1,2]}`},
		{
			"numbers stay", `{"a":[1.0,1e3,12345678901234567890,-0.5E-7]}`, `{"a":[1.0,1e3,12345678901234567890,-0.5E-7]}`,
			`{"a":[1.0,1e3,12345678901234567890,-0.5E-7]}`,
		},
		{"escapes stay", `{"a":"\u00e9\/\u007f<"}`, `{"a":"\u00e9\/\u007f<"}`, "{\"a\":\"é/\x7f<\"}"},
		{"names by what they say", `{"\u0062":1,"a":2}`, `{"a":2,"\u0062":1}`, `{"a":2,"b":1}`},
	} {
		n, err := parseTokens([]byte(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if got := string(n.appendTo(nil, styles[0])); got != c.sorted {
			t.Errorf("%s: %s, want %s", c.name, got, c.sorted)
		}
		if got := string(n.appendTo(nil, styles[4])); got != c.script {
			t.Errorf("%s: %s, want %s", c.name, got, c.script)
		}
	}
}

// independent runs another implementation over a list of JSON texts, one a line.
func independent(t *testing.T, texts []string, program string, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testbed.Program(t, program), args...)
	cmd.Stdin = strings.NewReader(strings.Join(texts, "\n") + "\n")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}

// jsonValue draws a value without numbers that implementations write differently.
func jsonValue(depth int) *rapid.Generator[any] {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab10\"\\/\b\f\n\r\t\x01\x1f\x7f<>&é☕😀｡\u2028\u2029\ufeff")), 0, 8, -1)
	return rapid.Custom(func(t *rapid.T) any {
		switch rapid.IntRange(0, 6).Draw(t, "kind") {
		case 0:
			return rapid.IntRange(-1000, 1000).Draw(t, "n")
		case 1:
			return nil
		case 2:
			return rapid.Bool().Draw(t, "b")
		case 3, 4:
			return text.Draw(t, "s")
		case 5:
			if depth > 0 {
				return rapid.SliceOfN(jsonValue(depth-1), 0, 3).Draw(t, "list")
			}
		}
		if depth == 0 {
			return "leaf"
		}
		return rapid.MapOfN(text, jsonValue(depth-1), 0, 4).Draw(t, "object")
	})
}

// TestCanonicalFormsAreThoseOfOtherImplementations compares each form with the program
// that hashes it.
func TestCanonicalFormsAreThoseOfOtherImplementations(t *testing.T) {
	t.Parallel()
	var texts []string
	for seed := range 400 {
		var out bytes.Buffer
		e := json.NewEncoder(&out)
		e.SetEscapeHTML(false)
		if err := e.Encode(map[string]any{
			"v": jsonValue(3).Example(seed),
			"a": jsonValue(2).Example(seed + 1000),
		}); err != nil {
			t.Fatal(err)
		}
		texts = append(texts, strings.TrimSpace(out.String()))
	}
	python := "import sys,json\nfor l in sys.stdin: print(json.dumps(json.loads(l), separators=(',',':'), sort_keys=True))"
	script := `const sort = v => Array.isArray(v) ? v.map(sort) : v && typeof v === 'object'
  ? Object.fromEntries(Object.keys(v).sort().map(k => [k, sort(v[k])])) : v;
for (const l of require('fs').readFileSync(0, 'utf8').split('\n').filter(l => l))
  console.log(JSON.stringify(sort(JSON.parse(l))))`
	for _, c := range []struct {
		name  string
		style style
		args  []string
	}{
		{"the seed's Python", styles[2], []string{"python3", "-c", python}},
		{"jq", styles[3], []string{"jq", "-cS", "."}},
		{"JavaScript", styles[4], []string{"node", "-e", script}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := independent(t, texts, c.args[0], c.args[1:]...)
			for i, text := range texts {
				n, err := parseTokens([]byte(text))
				if err != nil {
					t.Fatalf("%s: %v", text, err)
				}
				if got := string(n.appendTo(nil, c.style)); got != want[i] {
					t.Errorf("%s:\n got %s\nwant %s", text, got, want[i])
				}
			}
		})
	}
}

// FuzzCanonical: whatever comes, there is no panic; what is JSON stays the same value in
// every form, and canonical text is its own canonical text.
func FuzzCanonical(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":[1,"é",null],"b":{"\ud83d\ude00":1e3}}`, `{"a"`, `[`, `"\`, `{"a":1,}`,
		`{,}`, `[,]`, `01`, `{"a":1}x`, ``,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := parseTokens(text)
		if err != nil {
			if bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) < MaxNesting && json.Valid(text) {
				t.Fatalf("%q is JSON, and refused", text)
			}
			return
		}
		forms := n.forms()
		if !json.Valid(text) {
			return // what is refused before is not our affair, as long as nothing breaks
		}
		var want any
		if json.Unmarshal(text, &want) != nil {
			return
		}
		for _, form := range forms {
			var got any
			if err := json.Unmarshal(form, &got); err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("%q became %q: %v", text, form, err)
			}
		}
		again, err := Canonical(forms[0])
		if err != nil || !bytes.Equal(again, forms[0]) {
			t.Fatalf("%q: %q, then %q %v", text, forms[0], again, err)
		}
	})
}
