package wire_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/wire"
)

func TestForeignJSONIsReadAsItsAuthorsDo(t *testing.T) {
	var v struct {
		A string `json:"a"`
	}
	if err := wire.UnmarshalForeign([]byte(`{"a":"1","x":{"y":1,"y":2},"A":"no","a":"2"}`), &v); err != nil || v.A != "2" {
		t.Errorf("%+v %v", v, err)
	}
	if err := wire.UnmarshalForeign([]byte("{\"a\":\"\xff\"}"), &v); err != nil || v.A != "\ufffd" {
		t.Errorf("%+v %v", v, err)
	}
	for text, want := range map[string]bool{
		`{"a":1,"a":2}`: true, " [1] \n": true, `"x"`: true, "\"\xff\"": true, "": false, "{} {}": false, `{"a":1,}`: false,
		"01": false, "{}x": false,
	} {
		if got := wire.Valid([]byte(text)); got != want || json.Valid([]byte(text)) != want {
			t.Errorf("%q is valid: %v", text, got)
		}
	}
}

func TestJSONIsLaidOutForPeople(t *testing.T) {
	for text, want := range map[string]string{
		`{"a":1,"b":[true,{}],"a":2}`: "{\n  \"a\": 1,\n  \"b\": [\n    true,\n    {}\n  ],\n  \"a\": 2\n}",
		"[\n]":                        "[]",
		`"\u00e9<"`:                   `"\u00e9<"`,
		`1.50`:                        `1.50`,
	} {
		if got, ok := wire.Indent([]byte(text)); !ok || string(got) != want {
			t.Errorf("%s: %v %s", text, ok, cmp.Diff(want, string(got)))
		}
	}
	if _, ok := wire.Indent([]byte("no JSON")); ok {
		t.Error("text is taken for JSON")
	}
}

// TestDataKeepsItsDigits: what is read is written again as it was, but for its layout.
func TestDataKeepsItsDigits(t *testing.T) {
	const text = `{"b":[1.50,12345678901234567890,1e3],"a":"<é>","c":null}`
	const want = `{"a":"\u003cé\u003e","b":[1.50,12345678901234567890,1e3],"c":null}`
	for name, read := range map[string]func([]byte) (any, error){"Data": wire.Data, "ForeignData": wire.ForeignData} {
		data, err := read([]byte(text))
		if err != nil {
			t.Fatal(name, err)
		}
		if got, err := wire.EncodeData(data); err != nil || string(got) != want {
			t.Errorf("%s: %s %v", name, got, err)
		}
		if _, ok := data.(map[string]any)["b"].([]any)[0].(wire.Numeral); !ok {
			t.Errorf("%s: a number is a %T", name, data)
		}
	}
	if data, err := wire.ForeignData([]byte(`{"a":1,"a":2}`)); err != nil ||
		data.(map[string]any)["a"] != wire.Numeral("2") {
		t.Errorf("%v %v", data, err)
	}
	for _, text := range []string{"", "{", "1 2", "{}}"} {
		if _, err := wire.ForeignData([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
