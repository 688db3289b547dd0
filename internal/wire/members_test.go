package wire_test

import (
	"encoding/json"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

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
