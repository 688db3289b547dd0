package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/wire"
)

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
