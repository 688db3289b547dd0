package secret_test

import (
	"bytes"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/secret"
	"signalbox/internal/secret/secrettest"
)

var markForm = regexp.MustCompile(`\[secret:[a-z0-9-]+:[0-9a-f]{12}\]`)

func TestAMarkIsTheKindAndADigestUnderTheKey(t *testing.T) {
	token := "ghp_" + secrettest.Alnum(36)
	one, kinds := secret.New([]byte("one")).Text("use " + token + ", then " + token + ".")
	marks := markForm.FindAllString(one, -1)
	if len(marks) != 2 || marks[0] != marks[1] || !strings.HasPrefix(marks[0], "[secret:github-token:") {
		t.Errorf("the marks are %v", marks)
	}
	if one != "use "+marks[0]+", then "+marks[1]+"." || !slices.Equal(kinds, []string{"github-token"}) {
		t.Errorf("got %q with %v", one, kinds)
	}
	two, _ := secret.New([]byte("two")).Text("use " + token)
	if strings.Contains(two, marks[0]) {
		t.Error("another key gives the same digest")
	}
	inJSON, _ := secret.New([]byte("one")).JSON([]byte(`{"a":"` + escaped(token) + `"}`))
	if string(inJSON) != `{"a":"`+marks[0]+`"}` {
		t.Errorf("escapes change the digest: %s, and not %s", inJSON, marks[0])
	}
}

func TestJSONKeepsEveryOtherByte(t *testing.T) {
	token := "ghp_" + secrettest.Alnum(36)
	for _, c := range []struct{ name, raw, want string }{
		{"nothing to find", ` {"a" : 1.50, "a":1e400,"b":"\u00e9\/"} `, ` {"a" : 1.50, "a":1e400,"b":"\u00e9\/"} `},
		{"a value", `{"n":1.50,"x": "` + token + `","x":"y\/"}`, `{"n":1.50,"x": "<github-token>","x":"y\/"}`},
		{
			"part of a value with escapes", `["\u00e9\"` + token + `\ud83d\ude00\n"]`,
			`["\u00e9\"<github-token>\ud83d\ude00\n"]`,
		},
		{"a surrogate that is alone", `["\ud83d ` + token + ` \ude00"]`, `["\ud83d <github-token> \ude00"]`},
		{"a name", `{"` + token + `":{}}`, `{"<github-token>":{}}`},
		{"two in a string", `["` + token + ` ` + token + `"]`, `["<github-token> <github-token>"]`},
		{"a list under a name", `{"api_keys":["` + secrettest.Lower(20) + `",7]}`, `{"api_keys":["<api-key>",7]}`},
		{"a name that says so", `{"dbPassword":"tulip\u0037frost"}`, `{"dbPassword":"<password>"}`},
		{"a name further in", `{"a":[{"login":{"pass":"hunter2"}}]}`, `{"a":[{"login":{"pass":"<password>"}}]}`},
		{"a header", `{"Authorization":"Bearer ` + secrettest.Lower(30) + `"}`, `{"Authorization":"Bearer <bearer-token>"}`},
		{"cookies", `{"cookie":"theme=dark; sid=` + secrettest.Hexes(32) + `"}`, `{"cookie":"theme=dark; sid=<cookie>"}`},
		{"name and value", `[{"name":"PGPASSWORD","value":"tulip7"}]`, `[{"name":"PGPASSWORD","value":"<password>"}]`},
		{"name and value apart", `[{"name":"password"},{"value":"tulip7"}]`, `[{"name":"password"},{"value":"tulip7"}]`},
		{"arguments", `["login","--password","tulip7","frost7"]`, `["login","--password","<password>","frost7"]`},
		{"a list after a name", `[{"password":"hunter2"},["tulip7"]]`, `[{"password":"<password>"},["tulip7"]]`},
		{
			"the key of a service", `{"private_key":"` + secrettest.Block("PRIVATE KEY", `\n`) + `\n","key_id":"` +
				secrettest.Hexes(40) + `"}`,
			`{"private_key":"<private-key>\n","key_id":"` + secrettest.Hexes(40) + `"}`,
		},
		{
			"JSON in a string", `{"arguments":"{\"password\":\"tulip7frost\",\"n\":1}"}`,
			`{"arguments":"{\"password\":\"<password>\",\"n\":1}"}`,
		},
		{
			"JSON in a string in a string", `["[\"{\\\"token\\\":\\\"` + secrettest.Lower(20) + `\\\"}\"]"]`,
			`["[\"{\\\"token\\\":\\\"<token>\\\"}\"]"]`,
		},
		{"several documents", "{\"password\":\"hunter2\"}\n{\"a\":1}\n", "{\"password\":\"<password>\"}\n{\"a\":1}\n"},
		{"not JSON", `password="hunter2" {`, `password="<password>" {`},
		{
			"a document that was cut", `{"a":"\u0067` + token[1:] + `","b":"` + token,
			`{"a":"<github-token>","b":"<github-token>`,
		},
		{"what is no string", `{"password":123456,"token":null}`, `{"password":123456,"token":null}`},
		{"words", `{"password":"required","token":"bearer"}`, `{"password":"required","token":"bearer"}`},
		{"prose", `{"secret":"a secret","pass":"***"}`, `{"secret":"a secret","pass":"***"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			clean, _ := secret.New(nil).JSON([]byte(c.raw))
			got := regexp.MustCompile(`\[secret:([a-z0-9-]+):[0-9a-f]{12}\]`).ReplaceAllString(string(clean), "<$1>")
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAMarkInALongPasswordDoesNotSaveTheRest(t *testing.T) {
	text := `password="` + secrettest.Alnum(200) + `[secret:password:0123456789ab]` + secrettest.Alnum(20) + `"`
	if clean, _ := secret.New(nil).Text(text); strings.Contains(clean, secrettest.Alnum(20)) {
		t.Error(clean)
	}
}

// piece draws a piece of text: words, signs that mean something to the finder, credentials.
func piece() *rapid.Generator[string] {
	all := secrettest.Samples()
	return rapid.OneOf(
		rapid.SampledFrom([]string{
			" ", "\n", "=", ":", `"`, `\"`, "'", "{", "}", "[", "]", ",", "\\", "password", "token=", `"secret":`, "--api-key ",
			"https://", "user:", "@", "-p", "curl -u ", "mysql ", "eyJ", "sk-", "-----BEGIN RSA PRIVATE KEY-----", "-----",
			"Bearer ", "Cookie: ", "a=b; ", "[secret:password:0123456789ab]", "[secret:", "login ", "<password>", "</", "%3D",
			`\u0067`, "hunter2", "ghp_", "\x1b[3m", "…",
		}),
		rapid.Custom(func(t *rapid.T) string { return rapid.SampledFrom(all).Draw(t, "sample").Text() }),
		rapid.StringN(0, 8, 16),
	)
}

func text(t *rapid.T) string {
	return strings.Join(rapid.SliceOfN(piece(), 0, 12).Draw(t, "pieces"), "")
}

func TestCleanTextStaysAsItIs(t *testing.T) {
	r := secret.New([]byte("key"))
	rapid.Check(t, func(t *rapid.T) {
		clean, kinds := r.Text(text(t))
		again, kindsAgain := r.Text(clean)
		if again != clean {
			t.Fatalf("changes again:\n%s\n%s", clean, again)
		}
		if !slices.Equal(kinds, kindsAgain) {
			t.Fatalf("%v the first time, %v the second, in\n%s", kinds, kindsAgain, clean)
		}
	})
}

func TestTheSameTextGivesTheSameMarks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := text(t)
		one, kinds := secret.New([]byte("key")).Text(in)
		two, kindsToo := secret.New([]byte("key")).Text(in)
		raw, kindsInJSON := secret.New([]byte("key")).JSON([]byte(in))
		if one != two || one != string(raw) || !slices.Equal(kinds, kindsToo) || !slices.Equal(kinds, kindsInJSON) {
			t.Fatalf("%q (%v)\n%q (%v)\n%q (%v)", one, kinds, two, kindsToo, raw, kindsInJSON)
		}
	})
}

// document draws a value of JSON.
func document(depth int) *rapid.Generator[any] {
	kinds := []*rapid.Generator[any]{
		rapid.Map(rapid.Custom(text), func(s string) any { return s }),
		rapid.Map(rapid.IntRange(-9999, 9999), func(n int) any { return float64(n) }),
		rapid.Just[any](nil),
	}
	if depth > 0 {
		kinds = append(kinds,
			rapid.Map(rapid.SliceOfN(document(depth-1), 0, 3), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(rapid.Custom(text), document(depth-1), 0, 3), func(m map[string]any) any { return m }))
	}
	return rapid.OneOf(kinds...)
}

func TestJSONStaysTheSameButForItsSecrets(t *testing.T) {
	r := secret.New([]byte("key"))
	rapid.Check(t, func(t *rapid.T) {
		before := document(3).Draw(t, "document")
		raw, err := json.Marshal(before)
		if err != nil {
			t.Fatal(err)
		}
		clean, kinds := r.JSON(raw)
		if kinds == nil && !bytes.Equal(raw, clean) {
			t.Fatalf("changed without a reason:\n%s\n%s", raw, clean)
		}
		var after any
		if err := json.Unmarshal(clean, &after); err != nil {
			t.Fatalf("%v:\n%s\n%s", err, raw, clean)
		}
		compare(t, before, after)
	})
}

// compare checks that two documents are alike but for strings with marks.
func compare(t *rapid.T, before, after any) {
	switch b := before.(type) {
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) != len(b) {
			t.Fatalf("%v became %v", before, after)
		}
		for i := range b {
			compare(t, b[i], a[i])
		}
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok || len(a) > len(b) {
			t.Fatalf("%v became %v", before, after)
		}
		for name, value := range b {
			if kept, ok := a[name]; ok {
				compare(t, value, kept)
			}
		}
	default:
		if s, ok := after.(string); ok && markForm.MatchString(s) {
			return
		}
		if b != after {
			t.Fatalf("%v became %v", before, after)
		}
	}
}
