package strict_test

import (
	"encoding/json"
	"testing"

	"signalbox/client/internal/strict"
	"signalbox/internal/wire"
	"signalbox/internal/wire/wiretest"
)

func TestAnObjectIsReadOrRefusedAsAWhole(t *testing.T) {
	for _, c := range wiretest.Answers(wiretest.Words{Name: "decision", Yes: `"allow"`, No: `"block"`}) {
		members, err := strict.Object([]byte(c.Text))
		if got := err == nil && string(members["decision"]) == `"allow"`; got != c.Good {
			t.Errorf("%s: %q is taken for an approval: %v (%v)", c.Name, c.Text, got, err)
		}
	}
}

// FuzzObject: the clients take exactly those objects that the server would take.
func FuzzObject(f *testing.F) {
	for _, c := range wiretest.Answers(wiretest.Words{Name: "decision", Yes: `"allow"`, No: `"block"`}) {
		f.Add([]byte(c.Text))
	}
	for _, seed := range []string{
		`{"a":"\ud83d\ude00"}`, `{"a":"\\ud800"}`, `{"a":"\ud800\u0041"}`, `{"a":"\udc00"}`,
		`{"\ud800":1,"\ud801":2}`, `{"a":1e999}`, `{"a":"\"\\"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		ours, err := strict.Object(text)
		var theirs map[string]wire.Raw
		other := wire.UnmarshalPart(text, &theirs)
		if isObject := wire.Raw(text).Kind() == '{'; (err == nil) != (other == nil && isObject) {
			t.Fatalf("%q: the clients say %v, and the server %v", text, err, other)
		}
		if err != nil {
			return
		}
		if len(ours) != len(theirs) {
			t.Fatalf("%q: %d members, and %d", text, len(ours), len(theirs))
		}
		for name, value := range ours {
			if !json.Valid(value) || !wire.Same(wire.Raw(value), theirs[name]) {
				t.Errorf("%q: the member %q is %s, and %s", text, name, value, theirs[name])
			}
		}
	})
}
