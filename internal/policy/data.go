package policy

import (
	"math"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// adapter turns data into CEL values. JSON does not distinguish 3 from 3.0, and decoders
// differ in what they make of it. Here a whole number is an int however it was decoded, so
// that a replay, which decodes stored JSON, sees what the decision saw.
type adapter struct{ types.Adapter }

// NativeToValue is called by CEL for each value that it takes out of data.
func (a adapter) NativeToValue(v any) ref.Val {
	switch v := v.(type) {
	case ref.Val:
		return v
	case float64:
		return number(v)
	case numeral:
		if i, err := v.Int64(); err == nil {
			return types.Int(i)
		}
		f, err := v.Float64()
		if err != nil {
			return types.NewErr("%s is not a number that can be computed with", v)
		}
		return number(f)
	case map[string]any:
		return types.NewStringInterfaceMap(a, v)
	case []any:
		return types.NewDynamicList(a, v)
	}
	return a.Adapter.NativeToValue(v)
}

// number is an int if it is whole and no larger than one can be.
func number(f float64) ref.Val {
	if f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		return types.Int(f)
	}
	return types.Double(f)
}

// divide divides as people do: 3 / 2 is 1.5 in data, where whole and other numbers are
// the same, and nothing can be divided by zero.
func divide(l, r ref.Val) ref.Val {
	switch divisor := r.(type) {
	case types.Int:
		dividend, ok := l.(types.Int)
		if ok && divisor != 0 && dividend%divisor != 0 {
			return types.Double(dividend) / types.Double(divisor)
		}
	case types.Double:
		if divisor == 0 {
			return types.NewErr("division by zero")
		}
	}
	return l.(traits.Divider).Divide(r)
}
