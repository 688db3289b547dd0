package wire_test

import (
	"testing"

	"signalbox/internal/wire"
)

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
