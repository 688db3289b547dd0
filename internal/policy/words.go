package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"cel.dev/cel-go/common/types"
)

// TypeWords is a type as a person calls it.
func TypeWords(t *types.Type) string {
	switch t.Kind() {
	case types.StringKind:
		return "text"
	case types.IntKind, types.UintKind:
		return "a whole number"
	case types.DoubleKind:
		return "a number"
	case types.BoolKind:
		return "true or false"
	case types.ListKind:
		return "a list"
	case types.MapKind:
		return "a map"
	case types.TimestampKind:
		return "a time"
	case types.DurationKind:
		return "a length of time"
	case types.DynKind:
		return "a value of any type"
	case types.StructKind:
		return strings.ToLower(t.TypeName())
	}
	return t.String()
}

// costWords writes a cost; an estimate that overflowed is no number to show.
func costWords(units uint64) string {
	if units > 1e15 {
		return "without bound"
	}
	return fmt.Sprint(units)
}

func upperFirst(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// sortedKeys lists the names in a table in a fixed order, so that the same mistake
// gets the same hint every time.
func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
