package vector

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// anyPID stands in an expected event for the id of any process.
const anyPID = "<pid>"

// decode is JSON as maps, lists, strings and wire.Numeral, which keeps the digits of
// numbers.
func decode(text []byte) any {
	v, _ := wire.ForeignData(text) // what does not decode is nil, and differs
	return v
}

// differ says where two JSON values are not the same, "" if they are. Objects must have
// exactly the same members: one too many is as wrong as one too few. at is the path so
// far.
func differ(at string, want, got any) string {
	if want == anyPID {
		if n, ok := got.(wire.Numeral); ok && !strings.HasPrefix(string(n), "-") && string(n) != "0" {
			return ""
		}
	}
	// want decides how the two are compared.
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return different(at, want, got)
		}
		// In the order of names, so that the same difference is always the one that is
		// reported.
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

// sameNumber compares digits, and compares values only if one of the two has a fraction
// or an exponent: 2 and 2.0 are the same cost, but large integers must match digit by
// digit.
func sameNumber(a, b wire.Numeral) bool {
	if a == b {
		return true
	}
	x, err := a.Float64()
	y, err2 := b.Float64()
	return err == nil && err2 == nil && x == y && strings.ContainsAny(string(a)+string(b), ".eE")
}

// different says that two values differ, with the beginning of both.
func different(at string, want, got any) string {
	w, _ := wire.EncodeData(want)
	g, _ := wire.EncodeData(got)
	return fmt.Sprintf("%s is %.300s, and should be %.300s", at, g, w)
}
