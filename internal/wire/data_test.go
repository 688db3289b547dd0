package wire_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/wire"
)

func TestDataKeepsEveryDigitAndTheKindOfEveryValue(t *testing.T) {
	got, err := wire.Data([]byte(` {"a":[1,1.50,123456789012345678901],"b":{"c":null,"d":true},"e":"\u00e9"} `))
	want := map[string]any{
		"a": []any{json.Number("1"), json.Number("1.50"), json.Number("123456789012345678901")},
		"b": map[string]any{"c": nil, "d": true}, "e": "é",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestDataRefusesWhatIsNotOneValue(t *testing.T) {
	for text, pointer := range map[string]string{
		"": "", "{": "", "{} {}": "", "{}x": "", `{"a":1,}`: "", "// no\n{}": "", "\"\xff\"": "", "[1e999999999]": "",
		"[1E-5000]": "", `["a\u0000"]`: "", `{"\u0000":1}`: "", strings.Repeat("[", 300) + strings.Repeat("]", 300): "",
		`{"a":1,"a":2}`: "/a", `{"a":[{"b~/":1,"b~/":1}]}`: "/a/0/b~0~1",
	} {
		_, err := wire.Data([]byte(text))
		if got, is := wire.Twice(err); err == nil || got != pointer || is != (pointer != "") {
			t.Errorf("%q: %q %v %v", text, got, is, err)
		}
	}
}
