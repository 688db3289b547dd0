package policy

import (
	"slices"
	"strings"

	"cel.dev/cel-go/common/ast"
)

// Reads reports whether the condition of a rule reads a field, such as event.text,
// agent.labels or recent.cost. A protocol asks before it decodes what may not be needed. The
// answer comes from the syntax tree: a word in a text, in a label or as a part of another
// name does not count. A condition that uses the whole of event, as in
// [event].exists(e, e.tool == "bash"), reads every field of it. The answer is never a wrong
// no.
func (p *Policy) Reads(ruleName, field string) bool {
	i := slices.IndexFunc(p.rules, func(r *rule) bool { return r.name == ruleName })
	if i < 0 || p.rules[i].when == nil {
		return false
	}
	owner, _, _ := strings.Cut(field, ".")
	reads := p.rules[i].when.reads
	return reads[field] || reads[owner]
}

// readsOf are the fields that an expression reads, and the names of the variables that it
// uses as a whole.
func readsOf(e ast.Expr) map[string]bool {
	reads, inside := map[string]bool{}, map[int64]bool{}
	look := func(of ast.Expr, name string) {
		if owner := variableOf(of); owner != "" {
			reads[owner+"."+name], inside[of.ID()] = true, true
		}
	}
	visit := func(see func(ast.Expr)) { ast.PostOrderVisit(e, ast.NewExprVisitor(see)) }
	visit(func(e ast.Expr) {
		switch {
		case e.Kind() == ast.SelectKind:
			look(e.AsSelect().Operand(), e.AsSelect().FieldName())
		case e.Kind() == ast.CallKind && e.AsCall().IsMemberFunction() && variableOf(e.AsCall().Target()) == "recent":
			look(e.AsCall().Target(), e.AsCall().FunctionName())
		}
	})
	visit(func(e ast.Expr) {
		if owner := variableOf(e); owner != "" && !inside[e.ID()] {
			reads[owner] = true
		}
	})
	return reads
}

// variableOf is the name of the variable that an expression is, "" for any other expression.
// A loop's own variable of the same name counts too, which finds too much and never too
// little.
func variableOf(e ast.Expr) string {
	if e.Kind() != ast.IdentKind {
		return ""
	}
	name := strings.TrimPrefix(e.AsIdent(), ".")
	if !slices.Contains(variableNames, name) {
		return ""
	}
	return name
}
