package engine

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
)

// rebuilt reads a value with nothing but our own reader.
func rebuilt(v value) any {
	if text, ok := v.text(); ok {
		return text
	}
	if n, ok := v.number(); ok {
		return n
	}
	switch v[0] {
	case '{':
		out := map[string]any{}
		v.each(func(name []byte, member value) { out[string(name)] = rebuilt(member) })
		return out
	case '[':
		out := []any{}
		v.items(func(item value) { out = append(out, rebuilt(item)) })
		return out
	case 't':
		return true
	case 'f':
		return false
	}
	return nil
}

// FuzzParse compares our reader with encoding/json.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		`{}`, ` { "a" : [ 1 , -2.5e3 , "x\"\\" , null , true , false , { } , [ ] ] , "b\u0063" : "\ud83d\ude00 \ud83d" } `,
		`{"a":"\\","b":"\\\"","a":2}`, "{\"a\":\"\xff\xfe\"}", `{"a":"\\ud83d"}`, `{"\ud800":1}`, `{"a":1e400}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, ok := parse(text)
		var want any
		err := json.Unmarshal(text, &want)
		if _, object := want.(map[string]any); !object && err == nil {
			err = errNoObject
		}
		if err != nil {
			if ok && !json.Valid(bytes.TrimSpace(text)) {
				t.Fatalf("took what is not JSON: %q", text)
			}
			return
		}
		if !ok {
			t.Fatalf("refused %q", text)
		}
		if got := rebuilt(v); !reflect.DeepEqual(got, want) {
			t.Fatalf("%#v, want %#v", got, want)
		}
	})
}

var errNoObject = json.Unmarshal([]byte("x"), new(any))

func TestTruthIsThatOfPython(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "null": false, "false": false, "0": false, "-0.0": false, `""`: false, "[]": false, "[ ]": false,
		"{ }":  false,
		"true": true, "1": true, "0.1": true, `"no"`: true, "[0]": true, `{"a":null}`: true,
	} {
		if got := value(text).truthy(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
