package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"signalbox/internal/fault"
)

// Errors of CEL are for its developers. This file says the same in terms of what was
// written, at the place where it was written, with what was probably meant.

// offsetOf turns CEL's line (from 1) and column (from 0) into an offset in characters.
func offsetOf(text string, at common.Location) int {
	offset := max(0, at.Column())
	lines := strings.Split(text, "\n")
	for _, line := range lines[:max(0, min(at.Line()-1, len(lines)))] {
		offset += len([]rune(line)) + 1
	}
	return offset
}

// startOf is where an expression begins, or its operator if it has one.
func startOf(text string, a *ast.AST, e ast.Expr) int {
	return offsetOf(text, a.SourceInfo().GetStartLocation(e.ID()))
}

// syntaxIssues are what the parser found. After its first error it guesses, so only that
// one is reported.
func syntaxIssues(text string, found *cel.Issues) []issue {
	first := found.Errors()[0]
	words, _, _ := strings.Cut(strings.TrimPrefix(first.Message, "Syntax error: "), " expecting ")
	hint := "Look for a missing quote, bracket or operator. Texts stand in double quotes, and && means and."
	switch {
	case strings.Contains(words, "'="):
		hint = "Compare with ==."
	case regexp.MustCompile(`(?i)'(and|or|not)'`).MatchString(words):
		hint = "Write && for and, || for or, ! for not."
	}
	if strings.Contains(words, "exceed") {
		return []issue{{0, "The expression is too long or too deeply nested: " + words + ".", "Split it into several rules."}}
	}
	return []issue{{offsetOf(text, first.Location), "The expression is not complete or not CEL: " + words + ".", hint}}
}

// typeIssues are what the type checker found, in terms of what was written.
func (l *language) typeIssues(text string, a *ast.AST, found *cel.Issues) []issue {
	nodes := map[int64]ast.Expr{}
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) { nodes[e.ID()] = e }))
	var issues []issue
	for _, err := range found.Errors() {
		offset := offsetOf(text, err.Location)
		e, ok := nodes[err.ExprID]
		if !ok {
			e = ast.NewExprFactory().NewUnspecifiedExpr(0)
		}
		i, known := issue{}, false
		switch e.Kind() {
		case ast.IdentKind:
			i, known = unknownName(e.AsIdent(), offset)
		case ast.SelectKind:
			offset = after(text, e.AsSelect().FieldName(), offset) // CEL points at the dot
			i, known = unknownField(e.AsSelect(), offset)
		case ast.CallKind:
			i, known = l.wrongCall(text, e.AsCall(), err.Message, offset)
		case ast.LiteralKind:
			known = strings.HasPrefix(err.Message, "invalid")
			i = issue{
				offset, upperFirst(err.Message) + ".",
				`A time is written as "2026-05-01T12:00:00Z", a length of time as "90s" or "24h".`,
			}
		}
		if m := mismatch.FindStringSubmatch(err.Message); m != nil && !known {
			i, known = issue{
				offset, fmt.Sprintf("Expected %s, found %s.", m[1], m[2]),
				`Compare it with something, as in event.tool == "bash".`,
			}, true
		}
		if strings.Contains(err.Message, "range of a comprehension") {
			i, known = issue{
				offset, "This is neither a list nor a map.",
				"all, exists, exists_one, map and filter go over the items of a list or the names of a map.",
			}, true
		}
		if !known {
			i = issue{
				offset, upperFirst(err.Message) + ".",
				"See the list of fields and functions in the documentation of policies.",
			}
		}
		issues = append(issues, i)
	}
	return issues
}

// mismatch is how CEL reports an expression of the wrong type.
var mismatch = regexp.MustCompile(`^expected type '(.*)' but found '(.*)'$`)

// variableNames are what a condition can name.
var variableNames = []string{"event", "agent", "user", "delegation", "recent", "now"}

// unknownName is about a name that is no variable. Most often it is a field without its event.
func unknownName(name string, offset int) (issue, bool) {
	if slices.Contains(variableNames, name) {
		return issue{}, false
	}
	if _, isField := eventFields[name]; isField {
		return issue{offset, fmt.Sprintf("There is no variable %q.", name), fmt.Sprintf("Did you mean \"event.%s\"?", name)},
			true
	}
	return issue{offset, fmt.Sprintf("There is no variable %q.", name), fault.DidYouMean(name, variableNames)}, true
}

// unknownField is about event.x and agent.x. Other objects take any name.
func unknownField(s ast.SelectExpr, offset int) (issue, bool) {
	if s.Operand().Kind() != ast.IdentKind {
		return issue{}, false
	}
	owner := s.Operand().AsIdent()
	var known []string
	switch owner {
	case "event":
		known = sortedKeys(eventFields)
	case "agent":
		known = sortedKeys(agentFields)
	case "user":
		known = sortedKeys(userFields)
	case "delegation":
		known = sortedKeys(delegationFields)
	case "recent":
		hint := fault.DidYouMean(s.FieldName(), sortedKeys(counters))
		if _, ok := counters[s.FieldName()]; ok {
			hint = fmt.Sprintf(`Write recent.%s("10m").`, s.FieldName())
		}
		return issue{offset, fmt.Sprintf("recent has no field %q, only functions.", s.FieldName()), hint}, true
	default:
		return issue{}, false
	}
	if slices.Contains(known, s.FieldName()) {
		return issue{}, false // it is there, and wrong in another way
	}
	return issue{offset, fmt.Sprintf("%s has no field %q.", owner, s.FieldName()), fault.DidYouMean(s.FieldName(), known)},
		true
}

// applied finds the operand types in CEL's report of a call that has no such form.
var applied = regexp.MustCompile(`applied to '([^']*)'`)

// wrongCall is about a function that does not exist, or that does not take these arguments.
func (l *language) wrongCall(text string, c ast.CallExpr, words string, offset int) (issue, bool) {
	name := c.FunctionName()
	operands := "these operands"
	if m := applied.FindStringSubmatch(words); m != nil {
		operands = m[1]
	}
	if mismatch.MatchString(words) {
		return issue{}, false
	}
	if symbol, ok := operators.FindReverse(name); ok && symbol != "" {
		return issue{offset, fmt.Sprintf("%s does not take %s.", symbol, operands), operandHint(operands)}, true
	}
	offset = before(text, name, offset)
	if decl, ok := l.functions[name]; ok && !strings.HasPrefix(name, "@") {
		var forms []string
		for _, o := range decl.OverloadDecls() {
			forms = append(forms, signature(name, o.IsMemberFunction(), o.ArgTypes()))
		}
		return issue{
			offset, fmt.Sprintf("%s does not take %s.", name, operands),
			"It is called as " + strings.Join(forms[:min(3, len(forms))], " or ") + ".",
		}, true
	}
	if strings.HasPrefix(name, "@") {
		return issue{}, false
	}
	return issue{offset, fmt.Sprintf("There is no function %q.", name), fault.DidYouMean(name, l.functionNames())}, true
}

// operandHint guesses what was meant from the types of the operands, as CEL spells them.
func operandHint(operands string) string {
	switch {
	case !strings.Contains(operands, ","):
		return `Compare it with something first, as in event.tool == "bash".`
	case strings.Contains(operands, "double") && strings.Contains(operands, "int"):
		return "Write the whole number with a point, as in 5.0."
	case strings.Contains(operands, "string") &&
		(strings.Contains(operands, "int") || strings.Contains(operands, "double") || strings.Contains(operands, "bool")):
		return "A text stands in quotes, a number and true or false do not."
	}
	return "Both sides should be of the same type."
}

// functionNames are the functions that can be written, macros among them.
func (l *language) functionNames() []string {
	names := []string{"has", "all", "exists", "exists_one", "map", "filter"}
	for name, f := range l.functions {
		_, isOperator := operators.FindReverse(name)
		if !isOperator && !strings.HasPrefix(name, "@") && !f.IsDeclarationDisabled() && !strings.HasPrefix(name, "_") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func signature(name string, member bool, args []*types.Type) string {
	words := make([]string, len(args))
	for i, t := range args {
		words[i] = strings.ToLower(t.String())
	}
	if member && len(words) > 0 {
		return words[0] + "." + name + "(" + strings.Join(words[1:], ", ") + ")"
	}
	return name + "(" + strings.Join(words, ", ") + ")"
}

// after finds a name that begins at or after an offset, and before one that ends at or
// before it: CEL points at the dot and at the bracket.
func after(text, name string, offset int) int {
	runes := []rune(text)
	if i := strings.Index(string(runes[min(offset, len(runes)):]), name); i >= 0 {
		return offset + len([]rune(string(runes[offset:])[:i]))
	}
	return offset
}

func before(text, name string, offset int) int {
	runes := []rune(text)
	head := string(runes[:min(offset+len([]rune(name)), len(runes))])
	if i := strings.LastIndex(head, name); i >= 0 {
		return len([]rune(head[:i]))
	}
	return offset
}
