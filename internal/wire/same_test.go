package wire_test

import (
	"testing"

	"signalbox/internal/wire"
)

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
