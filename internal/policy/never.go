package policy

import (
	"slices"
	"strings"
	"time"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"signalbox/internal/facts"
	"signalbox/internal/fault"
	"signalbox/internal/policy/document"
)

// finding notes what is wrong with a rule although it can be run: it would do nothing, or not what
// is written. Check reports it. A policy that was applied before a finding was known stays in force.
func (r *reader) finding(at document.Position, hint, format string, args ...any) {
	r.found.Add(at, hint, format, args...)
}

// findings notes what was found about a condition.
func (r *reader) findings(n *yaml.Node, c *condition) {
	for _, i := range c.found {
		r.finding(r.Inside(n, i.offset), i.hint, "%s", i.message)
	}
}

// findUnreachable finds rules after one that always matches.
func (r *reader) findUnreachable(rules []*rule) {
	always := map[Point]*rule{}
	for _, one := range rules {
		var hidden []string
		var by *rule
		for _, p := range one.points {
			if always[p] != nil {
				hidden, by = append(hidden, string(p)), always[p]
			}
		}
		if len(hidden) > 0 && len(hidden) == len(one.points) {
			r.finding(document.Position{Line: one.line, Column: 1}, "Move it above that rule, or remove it.",
				"The rule %q is never reached: the rule %q on line %d matches everything on %s.", one.name, by.name, by.line,
				strings.Join(hidden, ", "))
		}
		if strings.TrimSpace(one.text) == "true" && !one.shadow {
			for _, p := range one.points {
				if always[p] == nil {
					always[p] = one
				}
			}
		}
	}
}

// impossible looks for a condition that can never hold at the points of its rule.
type impossible struct {
	points []Point
	issues []issue
	offset func(ast.Expr) int
}

// findImpossible finds conditions that never hold, values that a field never has, and time zones
// that do not exist.
func findImpossible(text string, a *ast.AST, points []Point) []issue {
	i := &impossible{points: points, offset: func(e ast.Expr) int { return startOf(text, a, e) }}
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(i.visit))
	if len(i.issues) == 0 && i.never(a.Expr()) {
		i.report(a.Expr(), "The condition never holds on "+strings.Join(pointNames(points), ", ")+".",
			"What a tool does is known on action and tool_call alone; see the fields in docs/policy.md.")
	}
	return i.issues
}

func (i *impossible) report(e ast.Expr, message, hint string) {
	i.issues = append(i.issues, issue{i.offset(e), message, hint})
}

// visit checks one node: values of fields that have few, and zones.
func (i *impossible) visit(e ast.Expr) {
	if e.Kind() != ast.CallKind {
		return
	}
	call := e.AsCall()
	switch args := call.Args(); call.FunctionName() {
	case operators.Equals:
		if text, ok := textOf(args[0]); ok {
			i.value(args[0], fieldOf(args[1]), text)
		} else if text, ok := textOf(args[1]); ok {
			i.value(args[1], fieldOf(args[0]), text)
		}
	case operators.In:
		if text, ok := textOf(args[0]); ok {
			i.value(args[0], fieldOf(args[1]), text)
		}
		if args[1].Kind() == ast.ListKind {
			for _, item := range args[1].AsList().Elements() {
				if text, ok := textOf(item); ok {
					i.value(item, fieldOf(args[0]), text)
				}
			}
		}
	case overloads.TimeGetFullYear, overloads.TimeGetMonth, overloads.TimeGetDate, overloads.TimeGetDayOfMonth,
		overloads.TimeGetDayOfWeek, overloads.TimeGetDayOfYear, overloads.TimeGetHours, overloads.TimeGetMinutes,
		overloads.TimeGetSeconds, overloads.TimeGetMilliseconds:
		if len(args) == 1 {
			i.zone(args[0])
		}
	}
}

// values are the fields that have few values.
func (i *impossible) values(field string) (known []string) {
	switch field {
	case "event.does":
		for _, class := range facts.Classes {
			known = append(known, string(class))
		}
	case "event.point":
		known = pointNames(i.points)
	case "event.opaque_reasons":
		for reason := range facts.Reasons {
			known = append(known, string(reason))
		}
	case "event.status":
		known = []string{"", "completed", "failed", "interrupted"}
	}
	slices.Sort(known)
	return known
}

// value checks that a field can have a value.
func (i *impossible) value(at ast.Expr, field, text string) {
	if known := i.values(field); len(known) > 0 && !slices.Contains(known, text) {
		i.report(at, field+" is never \""+shorten(text)+"\" here.", fault.DidYouMean(text, known))
	}
}

// zone checks the name of a time zone: one of the database, or a difference to UTC such as +02:00.
func (i *impossible) zone(e ast.Expr) {
	name, ok := textOf(e)
	if !ok {
		return
	}
	if _, err := time.Parse("-07:00", name); err == nil {
		return
	}
	if _, err := time.LoadLocation(name); err != nil || name == "Local" {
		i.report(e, "There is no time zone \""+shorten(name)+"\".", `Write one such as "Europe/Berlin", "UTC" or "+02:00".`)
	}
}

// never reports whether an expression is false for every event at the points. It finds what people
// write by mistake; what it does not understand may hold.
func (i *impossible) never(e ast.Expr) bool {
	switch e.Kind() {
	case ast.LiteralKind:
		return e.AsLiteral() == types.False
	case ast.ComprehensionKind: // exists over an empty list
		loop := e.AsComprehension()
		return loop.AccuInit().Kind() == ast.LiteralKind && loop.AccuInit().AsLiteral() == types.False &&
			i.empty(loop.IterRange())
	case ast.SelectKind:
		return i.empty(e) // event.opaque
	case ast.CallKind:
	default:
		return false
	}
	call := e.AsCall()
	args := call.Args()
	switch call.FunctionName() {
	case operators.LogicalAnd:
		return slices.ContainsFunc(args, i.never) || contradicts(args)
	case operators.LogicalOr:
		return !slices.ContainsFunc(args, func(a ast.Expr) bool { return !i.never(a) })
	case operators.In:
		return i.empty(args[1])
	case operators.Equals:
		for n, side := range args {
			if text, ok := textOf(args[1-n]); ok && text != "" && i.empty(side) {
				return true
			}
		}
	case "within", "outside", "covers":
		return i.empty(call.Target())
	case "contains", "startsWith", "endsWith":
		text, ok := textOf(args[len(args)-1])
		return call.IsMemberFunction() && ok && text != "" && i.empty(call.Target())
	}
	return false
}

// toolFields are the fields that only calls of tools have.
var toolFields = []string{
	"event.commands", "event.paths", "event.reads", "event.writes", "event.deletes", "event.hosts", "event.opaque",
	"event.opaque_reasons", "event.command", "event.path",
}

// empty reports whether an expression is a field that has nothing at any of the points.
func (i *impossible) empty(e ast.Expr) bool {
	return slices.Contains(toolFields, fieldOf(e)) && len(i.points) > 0 &&
		!slices.ContainsFunc(i.points, func(p Point) bool { return p == OnAction || p == OnToolCall })
}

// contradicts reports whether conditions that are joined with && want two texts in one field.
func contradicts(args []ast.Expr) bool {
	wants := map[string]string{}
	var look func(e ast.Expr) bool
	look = func(e ast.Expr) bool {
		if e.Kind() != ast.CallKind {
			return false
		}
		sides := e.AsCall().Args()
		switch e.AsCall().FunctionName() {
		case operators.LogicalAnd:
			return slices.ContainsFunc(sides, look)
		case operators.Equals:
			for n, side := range sides {
				text, ok := textOf(sides[1-n])
				field := fieldOf(side)
				if !ok || field == "" {
					continue
				}
				if before, twice := wants[field]; twice && before != text {
					return true
				}
				wants[field] = text
			}
		}
		return false
	}
	return slices.ContainsFunc(args, look)
}
