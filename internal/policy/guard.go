package policy

import (
	"cmp"
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"signalbox/internal/facts"
)

// guard is a necessary condition of an expression: one of a few fields has a certain text, as
// in event.tool == "bash" && …, a list contains it, as in "bash" in event.tools, a command has
// a name and an argument, as in event.commands.exists(c, c.name == "git" && "push" in c.args),
// or a fact is there at all, as in event.deletes.covers("/"). A rule
// whose guard is not met need not be evaluated, since in CEL false && anything is false,
// even an error. So a decision evaluates the few rules of a thousand that are about this
// tool, this agent or this host.
//
// What has to hold: a rule without its guard met never matches and never fails. A law in the
// tests compares decisions with and without guards.
type guard []want

// want is one text in one field.
type want struct {
	field string // as written, such as event.tool
	text  string // empty for a fact: see present
	arg   string // of a command: an argument that it has too, empty for any
}

// guardOf finds the guard of an expression, nil if it has none. Of a && b the guard of either
// side will do; a || b needs one on both sides.
func guardOf(e ast.Expr) guard { return (&guardFinder{}).of(e) }

// guardFinder finds the guard of an expression. command is the name of the loop's variable inside
// of event.commands.exists(…).
type guardFinder struct{ command string }

func (g *guardFinder) of(e ast.Expr) guard {
	if e.Kind() == ast.ComprehensionKind {
		return g.exists(e.AsComprehension())
	}
	if fieldOf(e) == opaqueField {
		return guard{{field: opaqueField}}
	}
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.LogicalAnd:
		return g.both(args)
	case operators.LogicalOr:
		var either guard
		for _, a := range args {
			one := g.of(a)
			if one == nil {
				return nil
			}
			either = append(either, one...)
		}
		return either
	case operators.Equals:
		if _, ok := textOf(args[0]); ok {
			args = []ast.Expr{args[1], args[0]}
		}
		if text, ok := textOf(args[1]); ok && g.field(args[0]) != "" {
			return guard{{field: g.field(args[0]), text: text}}
		}
	case operators.In:
		return g.in(args[0], args[1])
	case operators.Greater: // size(event.hosts) > 0
		if args[0].Kind() == ast.CallKind && args[0].AsCall().FunctionName() == "size" &&
			args[1].Kind() == ast.LiteralKind && args[1].AsLiteral() == types.Int(0) {
			return factOf(append(args[0].AsCall().Args(), args[0].AsCall().Target())[0])
		}
	}
	if placeTests[call.FunctionName()] != nil && areTexts(args[0]) { // anything else could fail
		return factOf(call.Target())
	}
	return nil
}

// both is the guard of a && b: of one that has a guard, with the argument that another asks for.
func (g *guardFinder) both(all []ast.Expr) (wants guard) {
	arg := ""
	for _, a := range all {
		if wants == nil {
			wants = g.of(a)
		}
		arg = cmp.Or(arg, g.argument(a))
	}
	for i := range wants {
		if wants[i].field == commandsField && wants[i].arg == "" {
			wants[i].arg = arg
		}
	}
	return wants
}

// argument is the text that has to be among the arguments of the command, as in "push" in c.args.
func (g *guardFinder) argument(e ast.Expr) string {
	if g.command == "" || e.Kind() != ast.CallKind || e.AsCall().FunctionName() != operators.In {
		return ""
	}
	text, _ := textOf(e.AsCall().Args()[0])
	switch fieldOf(e.AsCall().Args()[1]) {
	case g.command + ".args", g.command + ".targets":
		return text
	}
	return ""
}

// factOf is the guard of something that is false while a list of facts is empty.
func factOf(list ast.Expr) guard {
	if name := fieldOf(list); present[name] != nil {
		return guard{{field: name}}
	}
	return nil
}

// exists is the guard of event.commands.exists(c, …), which CEL has turned into a loop that
// joins its steps with ||.
func (g *guardFinder) exists(loop ast.ComprehensionExpr) guard {
	step := loop.LoopStep()
	if step.Kind() != ast.CallKind || step.AsCall().FunctionName() != operators.LogicalOr ||
		len(step.AsCall().Args()) != 2 {
		return nil
	}
	first := step.AsCall().Args()[0]
	if first.Kind() != ast.IdentKind || first.AsIdent() != loop.AccuVar() {
		return nil
	}
	if fieldOf(loop.IterRange()) != "event.commands" {
		return factOf(loop.IterRange())
	}
	if g.command != "" { // a loop inside of a loop is about another command
		return nil
	}
	return (&guardFinder{command: loop.IterVar()}).of(step.AsCall().Args()[1])
}

// field is the name of a field that guards are about, empty for any other expression.
func (g *guardFinder) field(e ast.Expr) string {
	name := fieldOf(e)
	if g.command != "" && name == g.command+".name" {
		return commandsField
	}
	if guarded[name] == nil {
		return ""
	}
	return name
}

// in is the guard of "text" in event.tools, or of event.tool in ["text", …].
func (g *guardFinder) in(item, list ast.Expr) (wants guard) {
	if text, ok := textOf(item); ok && fieldOf(list) == toolsField {
		return guard{{field: toolsField, text: text}}
	} else if ok {
		return factOf(list)
	}
	if list.Kind() != ast.ListKind || g.field(item) == "" {
		return nil
	}
	for _, one := range list.AsList().Elements() {
		text, ok := textOf(one)
		if !ok {
			return nil
		}
		wants = append(wants, want{field: g.field(item), text: text})
	}
	return wants
}

// The lists among the fields: the tools of a prompt, and the names of the commands of a shell text.
const (
	toolsField    = "event.tools"
	commandsField = "event.commands.name"
)

const opaqueField = "event.opaque"

// present are the facts that guards are about, with whether there are any. Credentials are not among
// them: looking for them takes longer than most rules.
var present = map[string]func(*facts.Facts) bool{
	opaqueField:            func(f *facts.Facts) bool { return len(f.Opaque) > 0 },
	"event.opaque_reasons": func(f *facts.Facts) bool { return len(f.Opaque) > 0 },
	"event.paths":          func(f *facts.Facts) bool { return len(f.Paths) > 0 },
	"event.reads":          func(f *facts.Facts) bool { return len(f.Reads) > 0 },
	"event.writes":         func(f *facts.Facts) bool { return len(f.Writes) > 0 },
	"event.deletes":        func(f *facts.Facts) bool { return len(f.Deletes) > 0 },
	"event.hosts":          func(f *facts.Facts) bool { return len(f.Hosts) > 0 },
}

// fieldOf is the name of a field of event or agent, empty for any other expression.
func fieldOf(e ast.Expr) string {
	if e.Kind() != ast.SelectKind || e.AsSelect().IsTestOnly() || e.AsSelect().Operand().Kind() != ast.IdentKind {
		return ""
	}
	return e.AsSelect().Operand().AsIdent() + "." + e.AsSelect().FieldName()
}

// guarded are the fields that guards are about: those that are text.
var guarded = guardedFields()

// guardedFields are the text fields of event and agent, with how to read them without CEL.
func guardedFields() map[string]func(*Input) string {
	all := map[string]func(*Input) string{}
	for name, f := range eventFields {
		if f.typ.Kind() == types.StringKind {
			all["event."+name] = func(in *Input) string { return string(f.get(in.Event).(types.String)) }
		}
	}
	for name, f := range agentFields {
		if f.typ.Kind() == types.StringKind {
			all["agent."+name] = func(in *Input) string { return string(f.get(&in.Agent).(types.String)) }
		}
	}
	for name, f := range userFields {
		if f.typ.Kind() == types.StringKind {
			all["user."+name] = func(in *Input) string { return string(f.get(&in.User).(types.String)) }
		}
	}
	for name, f := range delegationFields {
		if f.typ.Kind() == types.StringKind {
			all["delegation."+name] = func(in *Input) string { return string(f.get(in.delegation()).(types.String)) }
		}
	}
	return all
}

// pointIndex holds the rules of a control point, indexed by their guards. It does not change once
// the policy was parsed.
type pointIndex struct {
	unguarded []*rule // in the order of the file
	guarded   []fieldIndex
}

// fieldIndex holds the rules that are guarded by one field, by the text they want there.
type fieldIndex struct {
	field  string
	byText map[string][]guardedRule
}

// guardedRule is a rule, with the argument that its guard wants.
type guardedRule struct {
	*rule
	arg string
}

// add indexes a rule under each text of its guard, once for each even if the guard repeats it.
func (s *pointIndex) add(r *rule) {
	if r.when == nil || r.when.guard == nil {
		s.unguarded = append(s.unguarded, r)
		return
	}
	for _, g := range r.when.guard {
		i := slices.IndexFunc(s.guarded, func(w fieldIndex) bool { return w.field == g.field })
		if i < 0 {
			i = len(s.guarded)
			s.guarded = append(s.guarded, fieldIndex{g.field, map[string][]guardedRule{}})
		}
		one := guardedRule{r, g.arg}
		if had := s.guarded[i].byText[g.text]; !slices.Contains(had, one) {
			s.guarded[i].byText[g.text] = append(had, one)
		}
	}
}

// candidates are the rules whose guard is met, in the order of the file, each once.
func (s *pointIndex) candidates(in *Input) []*rule {
	if len(s.guarded) == 0 {
		return s.unguarded
	}
	all := append(make([]*rule, 0, len(s.unguarded)+16), s.unguarded...)
	add := func(w fieldIndex, text string, args []string) {
		for _, one := range w.byText[text] {
			if one.arg == "" || slices.Contains(args, one.arg) {
				all = append(all, one.rule)
			}
		}
	}
	for _, w := range s.guarded {
		if isPresent := present[w.field]; isPresent != nil {
			if isPresent(in.Event.Facts()) {
				add(w, "", nil)
			}
			continue
		}
		switch w.field {
		case toolsField:
			for _, tool := range in.Event.Tools {
				add(w, tool, nil)
			}
		case commandsField:
			for _, c := range in.Event.Facts().Commands {
				add(w, c.Name, c.Args)
			}
		default:
			add(w, guarded[w.field](in), nil)
		}
	}
	if len(all) > len(s.unguarded) { // some of them by two of their texts
		slices.SortFunc(all, func(a, b *rule) int { return a.place - b.place })
		all = slices.Compact(all)
	}
	return all
}
