package policy

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"signalbox/internal/policy/window"
)

// ruleFunctions are the functions that rules may call beyond CEL's own, and the counters of
// recent. There are few, and none whose result is much larger than its arguments: what an
// agent sends must not be able to fill the memory.
func ruleFunctions() []cel.EnvOption {
	text, texts := cel.StringType, cel.ListType(cel.StringType)
	options := []cel.EnvOption{
		cel.Function("lowerAscii", cel.MemberOverload("string_lower_ascii", []*cel.Type{text}, text,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.String(lowerASCII(string(v.(types.String)))) }))),
		cel.Function("trim", cel.MemberOverload("string_trim", []*cel.Type{text}, text,
			cel.UnaryBinding(func(v ref.Val) ref.Val { return types.String(strings.TrimSpace(string(v.(types.String)))) }))),
		cel.Function("split", cel.MemberOverload("string_split_string", []*cel.Type{text, text}, texts,
			cel.BinaryBinding(func(v, sep ref.Val) ref.Val {
				return types.DefaultTypeAdapter.NativeToValue(strings.Split(string(v.(types.String)), string(sep.(types.String))))
			}))),
		cel.Function("join", decls.DisableTypeGuards(true), // they refuse a list that begins with something absent
			cel.MemberOverload("list_join_string", []*cel.Type{texts, text}, text, cel.BinaryBinding(join))),
	}
	for _, name := range sortedKeys(counters) {
		options = append(options, cel.Function(name, decls.DisableTypeGuards(true), // the window was turned into a number
			cel.MemberOverload("recent_"+name, []*cel.Type{recentType, text}, counters[name],
				cel.BinaryBinding(func(recent, window ref.Val) ref.Val { return count(recent, name, window, counters[name]) })),
			cel.MemberOverload("recent_"+name+"_of", []*cel.Type{recentType, text, text}, counters[name],
				cel.FunctionBinding(func(args ...ref.Val) ref.Val {
					return count(args[0], name+"."+string(args[2].(types.String)), args[1], counters[name])
				}))))
	}
	return append(options, cel.Function(ruleCounter, decls.DisableTypeGuards(true),
		cel.MemberOverload("recent_"+ruleCounter, []*cel.Type{recentType, text, text}, cel.IntType,
			cel.FunctionBinding(func(args ...ref.Val) ref.Val {
				return count(args[0], RuleCount(string(args[1].(types.String))), args[2], cel.IntType)
			}))))
}

// ruleCounter is the function that counts the decisions of one rule: recent.by_rule("no-root-delete", "1h").
const ruleCounter = "by_rule"

// RuleCount is the name under which the decisions of a rule are counted.
func RuleCount(rule string) string { return ruleCounter + "." + rule }

// Scopes narrow a counter to what has the same tool, session or tier as the event, or widen it to all agents of
// the same user, or do both. Those of run, deck and workspace count what all agents did in the same run, deck (the
// project of the event) or workspace; an event without a run counts for none. A counter and its scope are one name,
// such as actions.tool, in Count, Counts and Recent.
var Scopes = []string{"deck", "run", "session", "tier", "tool", "user", "user.tier", "user.tool", "workspace"}

// lowerASCII changes A to Z alone: other languages have no one lower case, and rules must not
// depend on a locale.
func lowerASCII(s string) string {
	return strings.Map(func(c rune) rune {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		return c
	}, s)
}

// join puts a separator between texts. It turns a command that was given as a list of words
// into one text that a pattern can match.
func join(list, separator ref.Val) ref.Val {
	items, isList := list.(traits.Lister)
	between, isText := separator.(types.String)
	if !isList || !isText {
		return types.NewErr("join takes a list and a text, and not %s and %s", list.Type().TypeName(),
			separator.Type().TypeName())
	}
	var words []string
	for it := items.Iterator(); it.HasNext() == types.True; {
		switch word := it.Next().(type) {
		case types.String:
			words = append(words, string(word))
		case types.Null:
			words = append(words, "") // absent
		default:
			return types.NewErr("join takes a list of texts, and there is a %s in it", word.Type().TypeName())
		}
	}
	return types.String(strings.Join(words, string(between)))
}

// count reads a counter. A policy that is evaluated without counters sees 0. Not a number is an
// error, which blocks, since comparisons with it would all be false.
func count(recent ref.Val, what string, w ref.Val, typ *cel.Type) ref.Val {
	var n float64
	if r, ok := recent.Value().(Recent); ok && r != nil {
		n = r.Count(what, windowOf(w))
	}
	if math.IsNaN(n) {
		return types.NewErr("recent.%s is not a number", what)
	}
	if typ == cel.DoubleType {
		return types.Double(n)
	}
	return types.Int(max(math.MinInt64, min(math.MaxInt64/2, n)))
}

// windowOf is a window as inspectCounter has written it into the expression.
func windowOf(v ref.Val) window.Window { return window.Window(v.(types.Int)) }

// empty are the values that stand for something absent, by the kind that is wanted.
var empty = map[types.Kind]ref.Val{
	types.StringKind:    types.String(""),
	types.BytesKind:     types.Bytes(nil),
	types.BoolKind:      types.False,
	types.IntKind:       types.IntZero,
	types.UintKind:      types.Uint(0),
	types.DoubleKind:    types.Double(0),
	types.TimestampKind: types.Timestamp{Time: time.Unix(0, 0).UTC()},
	types.DurationKind:  types.Duration{},
	types.ListKind:      types.NewDynamicList(types.DefaultTypeAdapter, []any{}),
	types.MapKind:       types.NewDynamicMap(types.DefaultTypeAdapter, map[string]any{}),
}

// orEmpty is the name of the function that puts the empty value of a kind in place of
// what is absent.
func orEmpty(k types.Kind) string { return "@or_empty_" + strconv.Itoa(int(k)) }

// dataFunctions look into data that may be absent or of any type. Their names begin with @,
// which nobody can write in a rule: only rewrite puts them in.
func dataFunctions() []cel.EnvOption {
	options := []cel.EnvOption{
		hidden("@at", 2, cel.BinaryBinding(lookUp)),
		hidden("@has", 2, cel.BinaryBinding(func(container, key ref.Val) ref.Val {
			m, ok := container.(traits.Mapper)
			if !ok {
				return types.False
			}
			v, found := m.Find(key)
			return types.Bool(found && v != types.NullValue)
		})),
	}
	for _, kind := range slices.Sorted(maps.Keys(empty)) {
		options = append(options, hidden(orEmpty(kind), 1, cel.UnaryBinding(func(v ref.Val) ref.Val {
			if v == types.NullValue {
				return empty[kind]
			}
			return v
		})))
	}
	for _, name := range sortedKeys(dataOperators) {
		options = append(options, hidden("@"+name, 2, cel.BinaryBinding(onData(name, dataOperators[name]))))
	}
	return options
}

func hidden(name string, args int, binding cel.OverloadOpt) cel.EnvOption {
	return cel.Function(name, cel.Overload(name, slices.Repeat([]*cel.Type{cel.DynType}, args), cel.DynType, binding))
}

// lookUp is a member of a map or an item of a list, null when it is not there. Null
// stands for absent: a sender that writes null means that there is nothing.
func lookUp(container, key ref.Val) ref.Val {
	if container == types.NullValue || key == types.NullValue {
		return types.NullValue
	}
	switch c := container.(type) {
	case traits.Mapper:
		if v, found := c.Find(key); found || types.IsError(v) {
			return v
		}
		return types.NullValue
	case traits.Lister:
		i, err := types.GetOrError(key)
		if err != nil {
			return types.NewErr("a list has no item %v", key.Value())
		}
		if i < 0 || types.Int(i) >= c.Size().(types.Int) {
			return types.NullValue
		}
		return c.Get(types.Int(i))
	}
	return types.NewErr("%s has no member %v", container.Type().TypeName(), key.Value())
}
