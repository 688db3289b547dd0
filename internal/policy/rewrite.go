package policy

import (
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
)

// rewriter changes a checked expression so that what is absent is empty and never an
// error. Where an expression looks into data, it puts a function that returns null for what
// is not there. Where a value from data is used, it puts a function that turns null into the
// empty value of the type that is expected there. The result is an ordinary CEL program:
// nothing about its evaluation is special. Types are those the checker found: a value from
// data is one of type dyn.
type rewriter struct {
	ast       *ast.AST
	make      ast.ExprFactory
	next      int64
	functions map[string]*decls.FunctionDecl
}

// rewrite changes the expression in place. The order matters: a node is rewritten after its
// operands, so that its type is still the one that the checker found.
func rewrite(a *ast.AST, functions map[string]*decls.FunctionDecl) {
	w := &rewriter{ast: a, make: ast.NewExprFactory(), next: ast.MaxID(a), functions: functions}
	// Children come before their parents, and what is put in is not visited.
	var exprs []ast.Expr
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) { exprs = append(exprs, e) }))
	for _, e := range exprs {
		switch e.Kind() {
		case ast.SelectKind:
			w.selection(e)
		case ast.CallKind:
			w.call(e)
		case ast.ComprehensionKind:
			w.want(types.ListKind, e.AsComprehension().IterRange())
		}
	}
}

func (w *rewriter) kind(e ast.Expr) types.Kind { return w.ast.GetType(e.ID()).Kind() }

// isData reports whether an expression may be absent or of any type.
func (w *rewriter) isData(e ast.Expr) bool { return w.kind(e) == types.DynKind }

// become turns an expression into the call of a function.
func (w *rewriter) become(e ast.Expr, function string, args ...ast.Expr) {
	e.SetKindCase(w.make.NewCall(e.ID(), function, args...))
	w.ast.SetReference(e.ID(), ast.NewFunctionReference(function))
}

// want wraps those of the expressions that come from data, so that they have the empty value
// of the kind when they are absent.
func (w *rewriter) want(kind types.Kind, exprs ...ast.Expr) {
	for _, e := range exprs {
		if w.isData(e) {
			w.wrap(e, kind)
		}
	}
}

// wrap puts an expression into the function that gives the kind's empty value for null.
func (w *rewriter) wrap(e ast.Expr, kind types.Kind) {
	if _, known := empty[kind]; !known {
		return
	}
	w.next++
	inner := w.make.NewUnspecifiedExpr(w.next)
	inner.SetKindCase(e)
	w.ast.SetType(w.next, w.ast.GetType(e.ID()))
	if r, ok := w.ast.ReferenceMap()[e.ID()]; ok {
		w.ast.SetReference(w.next, r)
	}
	w.become(e, orEmpty(kind), inner)
}

// selection rewrites a.b and has(a.b) where a is data or a map.
func (w *rewriter) selection(e ast.Expr) {
	s := e.AsSelect()
	if k := w.kind(s.Operand()); k != types.DynKind && k != types.MapKind {
		return
	}
	w.next++
	name := w.make.NewLiteral(w.next, types.String(s.FieldName()))
	if s.IsTestOnly() {
		w.become(e, "@has", s.Operand(), name)
		return
	}
	w.lookUp(e, s.Operand(), name)
}

// lookUp rewrites a.b and a[b]. Out of labels comes text, so what is absent is empty
// text at once; out of a payload comes anything.
func (w *rewriter) lookUp(e, container, key ast.Expr) {
	w.become(e, "@at", container, key)
	if !w.isData(e) {
		w.wrap(e, w.kind(e))
	}
}

// call rewrites a call or an operator, by what it expects of its operands. A method's target
// is its first argument here.
func (w *rewriter) call(e ast.Expr) {
	c := e.AsCall()
	args := c.Args()
	if c.IsMemberFunction() {
		args = append([]ast.Expr{c.Target()}, args...)
	}
	switch name := c.FunctionName(); name {
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot:
		w.want(types.BoolKind, args...)
	case operators.Negate:
		w.want(types.IntKind, args...)
	case operators.Conditional:
		w.want(types.BoolKind, args[0])
		if !w.isData(e) {
			w.want(w.kind(e), args[1:]...)
		}
	case operators.Index:
		w.lookUp(e, args[0], args[1])
	case operators.In:
		w.membership(args[0], args[1])
	default:
		if placeTests[name] != nil && areTexts(args[1]) {
			// Places that are written out are the same for every decision.
			args[1].SetKindCase(w.make.NewLiteral(args[1].ID(), placeList(args[1])))
		}
		if _, known := dataOperators[name]; known {
			w.operator(e, name, args)
			return
		}
		w.arguments(e, name, args)
	}
}

// operator rewrites a binary operator that has data on a side. A comparison with the
// word null asks whether something is absent, and stays as it is.
func (w *rewriter) operator(e ast.Expr, name string, args []ast.Expr) {
	isNull := func(a ast.Expr) bool { return w.kind(a) == types.NullTypeKind }
	if slices.ContainsFunc(args, w.isData) && !slices.ContainsFunc(args, isNull) {
		w.become(e, "@"+name, args...)
		if w.kind(e) != types.BoolKind {
			// The checker took the number in the data for one of the kind it meets; it
			// may be another.
			w.ast.SetType(e.ID(), types.DynType)
		}
	}
}

// membership rewrites a in b.
func (w *rewriter) membership(item, container ast.Expr) {
	if params := w.ast.GetType(container.ID()).Parameters(); len(params) > 0 {
		w.want(params[0].Kind(), item)
	}
	w.want(types.ListKind, container)
}

// conversions are the functions that take several types, and the one whose empty
// value is turned into the empty value of the result.
var conversions = map[string]types.Kind{
	overloads.TypeConvertBool:      types.BoolKind,
	overloads.TypeConvertBytes:     types.BytesKind,
	overloads.TypeConvertDouble:    types.DoubleKind,
	overloads.TypeConvertDuration:  types.DurationKind,
	overloads.TypeConvertInt:       types.IntKind,
	overloads.TypeConvertString:    types.StringKind,
	overloads.TypeConvertTimestamp: types.TimestampKind,
	overloads.TypeConvertUint:      types.UintKind,
	overloads.Size:                 types.StringKind,
}

// arguments rewrites the arguments of a function, which says itself what it wants.
func (w *rewriter) arguments(e ast.Expr, name string, args []ast.Expr) {
	decl := w.functions[name]
	ids := w.ast.GetOverloadIDs(e.ID())
	if decl == nil || len(ids) == 0 || !slices.ContainsFunc(args, w.isData) {
		return
	}
	if kind, ok := conversions[name]; ok {
		w.want(kind, args...)
		// Which of its forms is called depends on what the data turns out to be.
		w.ast.SetReference(e.ID(), &ast.ReferenceInfo{Name: name})
		return
	}
	for _, o := range decl.OverloadDecls() {
		if o.ID() != ids[0] {
			continue
		}
		for i, t := range o.ArgTypes() {
			w.want(t.Kind(), args[i])
		}
	}
}
