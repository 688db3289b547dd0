package policy

import (
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// dataOperators are CEL's operators for operands that come out of data. onData has brought
// the operands to one type as far as that is possible.
var dataOperators = map[string]func(l, r ref.Val) ref.Val{
	operators.Equals:        types.Equal,
	operators.NotEquals:     func(l, r ref.Val) ref.Val { return types.Bool(types.Equal(l, r) != types.True) },
	operators.Less:          comparing(func(order types.Int) bool { return order < 0 }),
	operators.LessEquals:    comparing(func(order types.Int) bool { return order <= 0 }),
	operators.Greater:       comparing(func(order types.Int) bool { return order > 0 }),
	operators.GreaterEquals: comparing(func(order types.Int) bool { return order >= 0 }),
	operators.Add:           func(l, r ref.Val) ref.Val { return l.(traits.Adder).Add(r) },
	operators.Subtract:      func(l, r ref.Val) ref.Val { return l.(traits.Subtractor).Subtract(r) },
	operators.Multiply:      func(l, r ref.Val) ref.Val { return l.(traits.Multiplier).Multiply(r) },
	operators.Divide:        divide,
	operators.Modulo:        func(l, r ref.Val) ref.Val { return l.(traits.Modder).Modulo(r) },
}

// needs is the trait that the left operand must have.
var needs = map[string]int{
	operators.Less: traits.ComparerType, operators.LessEquals: traits.ComparerType,
	operators.Greater: traits.ComparerType, operators.GreaterEquals: traits.ComparerType,
	operators.Add: traits.AdderType, operators.Subtract: traits.SubtractorType,
	operators.Multiply: traits.MultiplierType, operators.Divide: traits.DividerType,
	operators.Modulo: traits.ModderType,
}

// comparing makes an operator of a condition on the order of its operands, nil if they have
// none.
func comparing(holds func(order types.Int) bool) func(l, r ref.Val) ref.Val {
	return func(l, r ref.Val) ref.Val {
		order, ok := l.(traits.Comparer).Compare(r).(types.Int)
		if !ok {
			return nil
		}
		return types.Bool(holds(order))
	}
}

// onData brings the operands to one type and applies the operator. Something absent becomes
// the empty value of the other operand's type. JSON has one kind of number, so whole numbers
// and others mix. Types that still do not fit are an error, which blocks.
func onData(name string, apply func(l, r ref.Val) ref.Val) func(l, r ref.Val) ref.Val {
	return func(l, r ref.Val) ref.Val {
		a, b := matchNumbers(emptyLike(l, r), emptyLike(r, l))
		var result ref.Val
		if trait := needs[name]; trait == 0 || a.Type().HasTrait(trait) {
			result = apply(a, b)
		}
		if result == nil || (types.IsError(result) && a.Type() != b.Type()) {
			symbol, _ := operators.FindReverse(name)
			return types.NewErr("%s %s %s cannot be computed: the types do not fit", a.Type().TypeName(), symbol,
				b.Type().TypeName())
		}
		return result
	}
}

// emptyLike is v, or when that is absent the empty value of the other's type.
func emptyLike(v, other ref.Val) ref.Val {
	if v != types.NullValue {
		return v
	}
	if other == types.NullValue {
		return types.IntZero // both are absent, and alike
	}
	t, ok := other.Type().(*types.Type)
	if !ok {
		return v
	}
	if e, known := empty[t.Kind()]; known {
		return e
	}
	return v
}

// matchNumbers turns a whole number that meets another number into one of that kind.
func matchNumbers(l, r ref.Val) (left, right ref.Val) {
	_, lDouble := l.(types.Double)
	_, rDouble := r.(types.Double)
	if lDouble && !rDouble {
		return l, asDouble(r)
	}
	if rDouble && !lDouble {
		return asDouble(l), r
	}
	return l, r
}

func asDouble(v ref.Val) ref.Val {
	switch v := v.(type) {
	case types.Int:
		return types.Double(v)
	case types.Uint:
		return types.Double(v)
	}
	return v
}
