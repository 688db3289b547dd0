package form

import (
	"encoding/json"
	"testing"

	"pgregory.net/rapid"

	"signalbox/internal/wire"
)

func TestWhatIsSaidIsPassedOver(t *testing.T) {
	for _, c := range []struct{ in, rest, found string }{
		{`{"model":"m","messages":[{"a":"]}"}],"x":1}`, `{"model":"m","x":1}`, `[{"a":"]}"}]`},
		{" { \"system\" : \"\\\\\\\"\" , \"tools\" : [ ] } ", `{"tools" : [ ]}`, ``},
		{`{"messages":null}`, `{}`, `null`},
		{`{"stream":true,"n":-1.5e3}`, `{"stream":true,"n":-1.5e3}`, ``},
		{`{}`, `{}`, ``},
		{`{"messages":"a","input":"\\"}`, `{}`, `"a"`},
	} {
		rest, said, ok := Without([]byte(c.in), "messages")
		if !ok || string(rest) != c.rest || string(said.Listed) != c.found {
			t.Errorf("%s: %s, %s, %t", c.in, rest, said.Listed, ok)
		}
	}
	for _, in := range []string{
		``, ` `, `[]`, `"x"`, `{`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a":1}}`, `{"a":1} x`,
		`{"a" 1}`, `{"a":"\"}`,
		`{"a":[1}`, `{"a":1 2}`, `{a:1}`, `{"messages":[],"messages":[]}`,
	} {
		if rest, _, ok := Without([]byte(in), "messages"); ok {
			t.Errorf("%s is taken for %s", in, rest)
		}
	}
}

// A text that is JSON is cut where a decoder cuts it, and one that was cut off is not whole.
func TestATextIsCutWhereADecoderCutsIt(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune("\"\\{}[]:, a\u00e9\n")))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		return rapid.Custom(func(t *rapid.T) any {
			kind := rapid.IntRange(0, 5).Draw(t, "kind")
			switch {
			case kind == 0:
				return rapid.Float64Range(-1e9, 1e9).Draw(t, "number")
			case kind == 1:
				return rapid.SampledFrom([]any{true, false, nil}).Draw(t, "word")
			case kind == 2 && depth > 0:
				return rapid.SliceOfN(value(depth-1), 0, 3).Draw(t, "list")
			case kind == 3 && depth > 0:
				return rapid.MapOfN(text, value(depth-1), 0, 3).Draw(t, "object")
			}
			return text.Draw(t, "text")
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.OneOf(text, rapid.SampledFrom([]string{"messages", "system", "model", "tools"}))
		object := rapid.MapOfN(names, value(3), 0, 6).Draw(t, "object")
		raw, err := json.MarshalIndent(object, "", rapid.SampledFrom([]string{"", " ", "\t"}).Draw(t, "indent"))
		if err != nil {
			t.Fatal(err)
		}
		rest, said, ok := Without(raw, "messages")
		if !ok || !IsCompleteObject(raw) {
			t.Fatalf("%s is not read", raw)
		}
		want := map[string]any{}
		for name, v := range object {
			if !conversation[name] {
				want[name] = v
			}
		}
		text, err := wire.Marshal(want)
		if err != nil || !wire.Same(rest, text) {
			t.Fatalf("%s is left, and should be %s (%v)", rest, text, err)
		}
		for name, found := range map[string][]byte{"messages": said.Listed, "system": said.System} {
			v, there := object[name]
			if text, err := wire.Marshal(v); err != nil || there != (found != nil) || there && !wire.Same(found, text) {
				t.Fatalf("%s was found as %s, and should be %s (%v)", found, name, text, err)
			}
		}
		cut := raw[:rapid.IntRange(0, len(raw)-1).Draw(t, "cut")]
		if IsCompleteObject(cut) {
			t.Fatalf("%q is taken for whole", cut)
		}
	})
}
