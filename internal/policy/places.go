package policy

import (
	"cmp"
	"slices"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"signalbox/internal/facts"
)

// pathList is event.paths, reads, writes or deletes: a list of texts that knows what the paths are
// relative to, so that a rule can compare them with ".", "~" and "$TMPDIR".
type pathList struct {
	traits.Lister
	paths []string
	base  facts.Base
}

// IsZeroValue makes has() false for an empty list.
func (p pathList) IsZeroValue() bool { return len(p.paths) == 0 }

// pathList is one of the lists as a value. It is made once: several rules look at the same list.
func (e *Event) pathList(kind int, paths []string) ref.Val {
	if e.lists[kind] == nil {
		e.lists[kind] = pathList{types.NewStringList(types.DefaultTypeAdapter, paths), paths, e.facts.Base}
	}
	return e.lists[kind]
}

// The lists of paths.
const (
	allPaths = iota
	readPaths
	writtenPaths
	deletedPaths
)

// class is what the call does; events that are no tool calls do nothing.
func (e *Event) class() facts.Does {
	if e.facts == nil {
		return facts.Other
	}
	return e.facts.Does
}

// commandList is event.commands.
func commandList(commands []facts.Command) ref.Val {
	all, objects := make([]ref.Val, len(commands)), make([]object, len(commands))
	for i := range commands {
		objects[i] = object{commandType, &commands[i]}
		all[i] = &objects[i]
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// placeTests compare paths with folders.
var placeTests = map[string]func(facts.Base, []string, ...string) bool{
	"within": facts.Base.Within, "outside": facts.Base.Outside, "covers": facts.Base.Covers,
}

// areTexts reports whether an expression is a text or a list of them, written out.
func areTexts(e ast.Expr) bool {
	if e.Kind() == ast.ListKind {
		return !slices.ContainsFunc(e.AsList().Elements(), func(one ast.Expr) bool { return !areTexts(one) })
	}
	_, ok := textOf(e)
	return ok
}

// placeList are the places of an expression that areTexts.
func placeList(e ast.Expr) ref.Val {
	all := []ast.Expr{e}
	if e.Kind() == ast.ListKind {
		all = e.AsList().Elements()
	}
	names := make([]string, len(all))
	for i, one := range all {
		names[i], _ = textOf(one)
	}
	return pathList{Lister: types.NewStringList(types.DefaultTypeAdapter, names), paths: names}
}

// placeFunctions are the tests for rules. Each takes a folder or a list of them.
func placeFunctions() (options []cel.EnvOption) {
	for name, holds := range placeTests {
		binding := cel.BinaryBinding(func(list, places ref.Val) ref.Val {
			paths, base, err := pathsOf(list)
			if err != nil || len(paths) == 0 {
				return cmp.Or(err, ref.Val(types.False))
			}
			names, _, err := pathsOf(places)
			if err != nil {
				return err
			}
			return types.Bool(holds(base, paths, names...))
		})
		options = append(options, cel.Function(name, decls.DisableTypeGuards(true),
			cel.MemberOverload("paths_"+name, []*cel.Type{texts, cel.StringType}, cel.BoolType, binding),
			cel.MemberOverload("paths_"+name+"_list", []*cel.Type{texts, texts}, cel.BoolType, binding),
			cel.MemberOverload("path_"+name, []*cel.Type{cel.StringType, cel.StringType}, cel.BoolType, binding),
			cel.MemberOverload("path_"+name+"_list", []*cel.Type{cel.StringType, texts}, cel.BoolType, binding)))
	}
	return options
}

// pathsOf are the texts of a list, or one text, and what they are relative to if they are paths of the
// event.
func pathsOf(v ref.Val) (paths []string, base facts.Base, failed ref.Val) {
	base = facts.BaseOf("")
	switch v := v.(type) {
	case pathList:
		return v.paths, v.base, nil
	case types.String:
		return []string{string(v)}, base, nil
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			text, ok := it.Next().(types.String)
			if !ok {
				return nil, base, types.NewErr("a folder should be a text")
			}
			paths = append(paths, string(text))
		}
		return paths, base, nil
	}
	return nil, base, types.NewErr("a list of paths is expected, and not %s", v.Type().TypeName())
}
