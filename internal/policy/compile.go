package policy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"

	"signalbox/internal/policy/offline"
	"signalbox/internal/policy/window"
)

// Limits of an expression. A unit of cost is about one step: a look-up, a comparison,
// ten characters of text that are searched.
const (
	// CostLimit is how much a rule may cost as estimated when it is compiled.
	CostLimit = 2_000_000

	// RunLimit is how much a rule with a loop over data may cost when it runs. It is less,
	// since a step of a loop takes longer than a search through text: about 40 ms.
	RunLimit = 500_000

	maxExpression = 8192 // characters
	maxPattern    = 1000 // steps of a compiled pattern
	checkEvery    = 256  // steps of a loop between two looks at the context
)

// issue is a problem in an expression, at an offset in characters.
type issue struct {
	offset        int
	message, hint string
}

// condition is a compiled expression with what was learnt about it while compiling. It is
// immutable.
type condition struct {
	program cel.Program
	loops   bool // it goes over data, so that it needs to be watched
	counts  []Count
	guard   guard
	reads   map[string]bool // see Policy.Reads
	offline *offline.Names  // nil if it needs the server
	found   []issue         // what Policy.Check reports
}

// compile checks an expression and makes it ready to run. The order matters: types first, then
// what types do not catch, then the cost, and only then the rewriting, which the type checker
// would not understand. points are those of the rule. Either the condition or at least one issue is returned.
func (l *language) compile(text string, points []Point) (*condition, []issue) {
	parsed, problems := l.env.Parse(text)
	if problems.Err() != nil {
		return nil, syntaxIssues(text, problems)
	}
	checked, problems := l.env.Check(parsed)
	if problems.Err() != nil {
		return nil, l.typeIssues(text, parsed.NativeRep(), problems)
	}
	c, issues := l.inspect(text, checked.NativeRep())
	if t := checked.OutputType(); t.Kind() != types.BoolKind {
		hint := `Compare it with something, as in event.tool == "bash".`
		if t.Kind() == types.DynKind {
			hint = "A value from data may be anything. Compare it, as in event.payload.urgent == true."
		}
		issues = append(issues,
			issue{0, fmt.Sprintf("The expression should be true or false, and is %s.", TypeWords(t)), hint})
	}
	if len(issues) > 0 {
		return nil, issues
	}
	estimate, err := l.env.EstimateCost(checked, sizes{})
	if err != nil || estimate.Max > CostLimit {
		return nil, []issue{{0, fmt.Sprintf("The expression may take too long: its cost is up to %s, and may be %d.",
			costWords(estimate.Max), CostLimit), "Do not go over one list inside of another, and search less text."}}
	}
	c.found = findImpossible(text, checked.NativeRep(), points)
	c.guard, c.reads = guardOf(checked.NativeRep().Expr()), readsOf(checked.NativeRep().Expr())
	c.offline = offline.Read(checked.NativeRep().Expr())
	rewrite(checked.NativeRep(), l.functions)
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if c.loops {
		options = append(options, cel.CostTracking(work{}), cel.CostLimit(RunLimit), cel.InterruptCheckFrequency(checkEvery))
	}
	if c.program, err = l.env.Program(checked, options...); err != nil {
		return nil, []issue{{0, "The expression cannot be run: " + err.Error() + ".", "Write it differently."}}
	}
	return c, nil
}

// inspect checks what the type checker cannot: patterns and windows must be literals, lists
// must be of one type, objects must not be made. It also turns the windows of recent into
// numbers, in place, so that they are not parsed for each decision.
func (l *language) inspect(text string, a *ast.AST) (*condition, []issue) {
	c := &condition{}
	var issues []issue
	refuse := func(e ast.Expr, message, hint string) {
		issues = append(issues, issue{startOf(text, a, e), message, hint})
	}
	ast.PostOrderVisit(a.Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		switch e.Kind() {
		case ast.ComprehensionKind:
			c.loops = c.loops || !overFacts(e.AsComprehension().IterRange())
		case ast.StructKind:
			refuse(e, "An expression cannot make objects.", "Compare fields one by one.")
		case ast.ListKind:
			inspectList(a, e.AsList().Elements(), refuse)
		case ast.CallKind:
			c.inspectCall(a, e.AsCall(), refuse)
		}
	}))
	return c, issues
}

// overFacts reports whether a loop goes over facts, which are few: over a list of event, or one of a
// command, as in event.commands.exists(c, "push" in c.args).
func overFacts(list ast.Expr) bool {
	owner, name, _ := strings.Cut(fieldOf(list), ".")
	_, ofCommand := commandFields[name]
	return owner == "event" && factFields[name] || owner != "" && owner != "event" && ofCommand
}

// inspectList refuses a list of different types, as in ["a", 1], of which one part can
// never be equal to anything that it is compared with.
func inspectList(a *ast.AST, items []ast.Expr, refuse func(e ast.Expr, message, hint string)) {
	var first *types.Type
	for _, item := range items {
		t := a.GetType(item.ID())
		switch {
		case t.Kind() == types.DynKind: // a value from data
		case first == nil:
			first = t
		case t.Kind() != first.Kind():
			refuse(item, fmt.Sprintf("The list holds %s and %s.", TypeWords(first), TypeWords(t)),
				"The items of a list should be of one type.")
			return
		}
	}
}

// inspectCall checks the calls of matches and of recent. A pattern has to be a literal, since
// what an agent sends must not become a pattern; and a small one, since a large one is slow on
// every decision.
func (c *condition) inspectCall(a *ast.AST, call ast.CallExpr, refuse func(e ast.Expr, message, hint string)) {
	if len(call.Args()) == 0 {
		return
	}
	last := call.Args()[len(call.Args())-1]
	switch {
	case call.FunctionName() == overloads.Matches:
		pattern, ok := textOf(last)
		if !ok {
			refuse(last, "The pattern of matches should be written in the rule, in quotes.",
				"Use contains or startsWith to look for a text that comes from elsewhere.")
			return
		}
		switch size, err := types.RegexProgramSize(pattern); {
		case err == nil && size > maxPattern:
			refuse(last, fmt.Sprintf("The pattern is too large: it compiles to %d steps, and may have %d.", size, maxPattern),
				"Repeat less, as in {1,20}, or use several patterns.")
		case err != nil:
			refuse(last, upperFirst(strings.TrimPrefix(err.Error(), "error parsing regexp: "))+".",
				`Patterns are those of RE2. A backslash in quotes is written twice, as in "\\.", or use r"\.".`)
		}
	case call.IsMemberFunction() && a.GetType(call.Target().ID()) == recentType:
		c.inspectCounter(call, refuse)
	}
}

// inspectCounter checks the window and the scope of a counter, as in recent.actions("10m", "tool") and
// recent.by_rule("no-root-delete", "1h"), and notes which counter is read.
func (c *condition) inspectCounter(call ast.CallExpr, refuse func(e ast.Expr, message, hint string)) {
	args, what := call.Args(), call.FunctionName()
	at := args[0]
	switch {
	case what == ruleCounter:
		rule, ok := textOf(args[0])
		if !ok || !ruleName.MatchString(rule) {
			refuse(args[0], "The first argument of recent.by_rule should be the name of a rule, in quotes.",
				`Write recent.by_rule("no-root-delete", "1h").`)
			return
		}
		what, at = RuleCount(rule), args[1]
	case len(args) == 2:
		scope, _ := textOf(args[1])
		if !slices.Contains(Scopes, scope) {
			refuse(args[1], "The scope of recent."+what+" should be "+strings.Join(Scopes, " or ")+", in quotes.",
				`Write recent.`+what+`("10m", "tool") for what was done with the same tool.`)
			return
		}
		what += "." + scope
	}
	text, _ := textOf(at)
	w, ok := window.Parse(text)
	if !ok || !w.Fits() {
		refuse(at, "The window of recent."+call.FunctionName()+" should be a length of time in quotes.",
			`Write one such as "90s", "10m", "24h" or "7d", from 1s to 31d, or "hour", "day" or "month" of UTC.`)
		return
	}
	at.SetKindCase(ast.NewExprFactory().NewLiteral(at.ID(), types.Int(w)))
	c.counts = append(c.counts, Count{what, w})
}

// textOf is the text of a literal.
func textOf(e ast.Expr) (string, bool) {
	if e.Kind() != ast.LiteralKind {
		return "", false
	}
	text, ok := e.AsLiteral().(types.String)
	return string(text), ok
}

// holds evaluates the condition. One with a loop is watched: its cost is counted, and it ends
// with ctx. One without cannot run for long, and watching costs more than evaluating.
func (c *condition) holds(ctx context.Context, vars *variables) (bool, error) {
	var out ref.Val
	var err error
	if c.loops {
		out, _, err = c.program.ContextEval(ctx, vars)
	} else {
		out, _, err = c.program.Eval(vars)
	}
	if err != nil {
		return false, err
	}
	b, ok := out.(types.Bool)
	if !ok { // compile has checked the type
		return false, errors.New("the result is neither true nor false")
	}
	return bool(b), nil
}
