package policy

import (
	"cmp"

	"cel.dev/cel-go/cel"
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

func (e *Event) pathList(paths []string) ref.Val {
	return pathList{types.NewStringList(types.DefaultTypeAdapter, paths), paths, e.facts.Base}
}

// class is what the call does; events that are no tool calls do nothing.
func (e *Event) class() facts.Does {
	if e.facts == nil {
		return facts.Other
	}
	return e.facts.Does
}

// commandList is event.commands.
func commandList(commands []facts.Command) ref.Val {
	all := make([]ref.Val, len(commands))
	for i := range commands {
		all[i] = object{commandType, &commands[i]}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, all)
}

// placeFunctions compare paths with folders: within, outside and covers. Each takes a folder or a
// list of them.
func placeFunctions() (options []cel.EnvOption) {
	for name, holds := range map[string]func(facts.Base, []string, ...string) bool{
		"within": facts.Base.Within, "outside": facts.Base.Outside, "covers": facts.Base.Covers,
	} {
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
