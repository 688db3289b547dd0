package vector

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// anyPID stands for any process.
const anyPID = "<pid>"

func decode(text []byte) any {
	v, _ := wire.ForeignData(text) // what does not decode is nil, and differs
	return v
}

// differ says where two JSON values are not the same, "" when they are.
func differ(at string, want, got any) string {
	if want == anyPID {
		if n, ok := got.(wire.Numeral); ok && !strings.HasPrefix(string(n), "-") && string(n) != "0" {
			return ""
		}
	}
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return different(at, want, got)
		}
		for _, name := range slices.Sorted(maps.Keys(w)) {
			if _, there := g[name]; !there {
				return fmt.Sprintf("%s.%s is missing", at, name)
			}
			if where := differ(at+"."+name, w[name], g[name]); where != "" {
				return where
			}
		}
		for _, name := range slices.Sorted(maps.Keys(g)) {
			if _, there := w[name]; !there {
				return fmt.Sprintf("%s.%s should not be there", at, name)
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return different(at, want, got)
		}
		for i := range w {
			if where := differ(fmt.Sprintf("%s[%d]", at, i), w[i], g[i]); where != "" {
				return where
			}
		}
		return ""
	case wire.Numeral:
		if g, ok := got.(wire.Numeral); ok && sameNumber(w, g) {
			return ""
		}
		return different(at, want, got)
	}
	if want != got {
		return different(at, want, got)
	}
	return ""
}

// sameNumber compares digits, and values where one is written with a fraction.
func sameNumber(a, b wire.Numeral) bool {
	if a == b {
		return true
	}
	x, err := a.Float64()
	y, err2 := b.Float64()
	return err == nil && err2 == nil && x == y && strings.ContainsAny(string(a)+string(b), ".eE")
}

func different(at string, want, got any) string {
	w, _ := wire.EncodeData(want)
	g, _ := wire.EncodeData(got)
	return fmt.Sprintf("%s is %.300s, and should be %.300s", at, g, w)
}
