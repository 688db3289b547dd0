package wire_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
	"signalbox/internal/wire/wiretest"
)

func TestAnAnswerIsReadAsEveryReaderOfOursReadsIt(t *testing.T) {
	for _, a := range wiretest.Answers(wiretest.Words{Name: "decision", Yes: `"allow"`, No: `"block"`}) {
		members, err := wire.Members([]byte(a.Text))
		if got := err == nil && string(members["decision"]) == `"allow"`; got != a.Good {
			t.Errorf("%s: Members takes %q for an approval: %v (%v)", a.Name, a.Text, got, err)
		}
		var part struct {
			Decision string `json:"decision"`
		}
		err = wire.UnmarshalPart([]byte(a.Text), &part)
		if got := err == nil && part.Decision == "allow"; got != a.Good {
			t.Errorf("%s: UnmarshalPart takes %q for an approval: %v (%v)", a.Name, a.Text, got, err)
		}
	}
}

func FuzzMembers(f *testing.F) {
	for _, seed := range []string{
		`{}`, `{"a":1}`, ` { "a" : [1, {"b":"\u0000"}] , "c":"\ud83d\ude00" } `, `{"a":1,"a":2}`, `{"a":1}x`, `{"a":1}{}`,
		`[1]`, `null`, ``, `"a"`, `{"a"`, `{"a":}`, "{\"a\":\"\xff\"}",
		`{"a":{"b":1,"b":2}}`, `{"a":1 "b":2}`, `{"a":1,}`, `{"a\u0000":1}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		members, err := wire.Members(data)
		var same map[string]wire.Raw
		other := wire.Unmarshal(data, &same)
		isObject := wire.Raw(data).Kind() == '{'
		if (err == nil) != (other == nil && isObject) {
			t.Fatalf("%q: %v, and Unmarshal says %v", data, err, other)
		}
		if err != nil {
			if !fault.Is(err, fault.InvalidPayload) {
				t.Fatalf("%q: %v", data, err)
			}
			return
		}
		if len(members) != len(same) {
			t.Fatalf("%q: %v, and Unmarshal has %v", data, members, same)
		}
		for name, value := range same {
			if string(members[name]) != string(value) {
				t.Fatalf("%q: %s is %s, and Unmarshal has %s", data, name, members[name], value)
			}
			var text string
			if got, ok := wire.Text(value); ok != (wire.Unmarshal(value, &text) == nil && value.Kind() == '"') ||
				ok && got != text {
				t.Fatalf("%s: %q %v, and Unmarshal has %q", value, got, ok, text)
			}
			if !json.Valid(value) {
				t.Fatalf("%q: %s is not JSON", data, value)
			}
		}
	})
}

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

func TestTheSameValueIsTheSameHoweverItIsWritten(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":1,"b":[true,null]}`, "{ \"b\" : [true,\tnull], \"a\" : 1 }\n", true},
		{`"\u0061\/"`, `"a/"`, true},
		{`1842`, `1842.0`, true},
		{`1842`, `1.842e3`, true},
		{`12345678901234567891`, `12345678901234567892`, false},
		{`9007199254740993`, `9007199254740992`, false},
		{`0.1`, `0.10`, true},
		{`[1,2]`, `[2,1]`, false},
		{`{"a":null}`, `{}`, false},
		{`"1"`, `1`, false},
		{`{`, `}`, false},
	} {
		if got := wire.Same(wire.Raw(c.a), wire.Raw(c.b)); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}

func TestASpliceKeepsEveryByteOfWhatItAdds(t *testing.T) {
	raw := wire.Raw("{ \"b\" : 1.0,\t\"\\u0061\":[ ] }")
	for _, c := range []struct {
		object  string
		members []wire.Member
		want    string
	}{
		{`{"a":1}`, []wire.Member{{Name: "x", Value: raw}}, `{"a":1,"x":` + string(raw) + `}`},
		{`{}`, []wire.Member{{Name: "x", Value: raw}, {Name: "y", Value: wire.Raw("0")}}, `{"x":` + string(raw) + `,"y":0}`},
		{`{}`, []wire.Member{{Name: "x"}, {Name: `a"b`, Value: wire.Raw("0")}}, `{"a\"b":0}`},
		{`{"a":1}`, []wire.Member{{Name: "x"}}, `{"a":1}`},
		{`{}`, nil, `{}`},
	} {
		if got := wire.Splice([]byte(c.object), c.members...); string(got) != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestEveryTextOfAJSONValueIsVisited(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`"alone"`: "=alone", `7`: "", `{}`: "", `[[],{}]`: "",
		`{"a":"x","b":7,"c":{"d":["y",null,{"e\u0066":"z\n"}],"g":true},"h":"w"}`: "0a:a|0a=x|1b:b|2c:c|2c0d:d|2c0d0=y|" +
			"2c0d20ef:ef|2c0d20ef=z\n|2c1g:g|3h:h|3h=w",
		`{"a":"1","a":"2"}`: "0a:a|0a=1|1a:a|1a=2",
		`["a",["b"],"c"]`:   "0=a|10=b|2=c",
		`{"a":"x","b":`:     "0a:a|0a=x|1b:b|!",
	} {
		var got []string
		err := wire.Texts([]byte(text), func(path []wire.Step, text string, isName bool) {
			var b strings.Builder
			for _, s := range path {
				fmt.Fprintf(&b, "%d%s", s.Number, s.Name)
			}
			got = append(got, b.String()+map[bool]string{true: ":", false: "="}[isName]+text)
		})
		if err != nil {
			got = append(got, "!")
		}
		if d := cmp.Diff(want, strings.Join(got, "|")); d != "" {
			t.Errorf("%s: %s", text, d)
		}
	}
}
