package wire_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/wire"
)

func TestNestedGoesIntoWhatIsNamed(t *testing.T) {
	for _, c := range []struct {
		text string
		want []map[string]string
	}{
		{`{"a":1}`, []map[string]string{{"a": "1"}, {}, {}}},
		{` { "p" : { "q" : { "r" : [ { } ] } , "x" : "{" } , "q" : {"no":1} } `, []map[string]string{
			{"p": `{ "q" : { "r" : [ { } ] } , "x" : "{" }`, "q": `{"no":1}`},
			{"q": `{ "r" : [ { } ] }`, "x": `"{"`},
			{"r": "[ { } ]"},
		}},
		{`{"\u0070":{"q":2}}`, []map[string]string{{"p": `{"q":2}`}, {"q": "2"}, {}}},
		{`{"p":[{"q":{}}]}`, []map[string]string{{"p": `[{"q":{}}]`}, {}, {}}},
		{`{"p.q":{"r":1},"p":null}`, []map[string]string{{"p.q": `{"r":1}`, "p": "null"}, {}, {}}},
	} {
		levels, err := wire.Nested([]byte(c.text), "p", "q")
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
			continue
		}
		got := make([]map[string]string, len(levels))
		for i, members := range levels {
			got[i] = map[string]string{}
			for name, raw := range members {
				got[i][name] = string(raw)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

func TestNestedRefusesWhatMembersRefuses(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `{`, `{"p":{"q":1,"q":2}}`, `{"p":{"q":1},"p":2}`, `{"p":{"\u0000":1}}`, `{"p":{}} x`, "{\"p\":\"\xff\"}",
		`{"p":{"q":}}`, `{"p":{"q":1}`,
	} {
		if _, err := wire.Nested([]byte(text), "p", "q"); err == nil {
			t.Errorf("%q is taken", text)
		}
		_, want := wire.Members([]byte(text))
		if want == nil && !strings.Contains(text, "u0000") { // what is inside is not looked at for that
			t.Errorf("%q is taken by Members", text)
		}
	}
}
