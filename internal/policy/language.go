package policy

import (
	"strings"
	"sync"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/cost"
	"cel.dev/cel-go/common/decls"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

// language is what rules are written in: CEL with our variables, types and functions. It is
// made once, does not change and is safe for concurrent use.
type language struct {
	env       *cel.Env
	functions map[string]*decls.FunctionDecl
}

// theLanguage is made on first use, since a program that only prints its version should not
// pay for it.
var theLanguage = sync.OnceValues(func() (*language, error) {
	registry, err := types.NewRegistry()
	if err != nil {
		return nil, err
	}
	options := []cel.EnvOption{
		cel.CustomTypeAdapter(adapter{registry}),
		cel.CustomTypeProvider(provider{registry}),
		cel.Variable("event", eventType),
		cel.Variable("agent", agentType),
		cel.Variable("user", userType),
		cel.Variable("delegation", delegationType),
		cel.Variable("recent", recentType),
		cel.Variable("now", cel.TimestampType),
		cel.CrossTypeNumericComparisons(true), // event.cost_usd > 5
		cel.ParserExpressionSizeLimit(maxExpression),
		cel.ASTValidators(cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	}
	options = append(options, ruleFunctions()...)
	options = append(options, dataFunctions()...)
	options = append(options, placeFunctions()...)
	env, err := cel.NewEnv(options...)
	if err != nil {
		return nil, err
	}
	return &language{env, env.Functions()}, nil
})

// sizes is how large data is assumed to be when a cost is estimated. Larger data at run time
// is still bounded, by RunLimit.
type sizes struct{}

// EstimateCallCost leaves it to CEL.
//
//nolint:gocritic // the interface has it so
func (sizes) EstimateCallCost(_, _ string, _ *cost.AstNode, _ []cost.AstNode) *cost.CallEstimate {
	return nil
}

// EstimateSize bounds texts at 64 KiB and everything inside of data at 1,000. Facts are smaller: their
// lists are bounded where they are found, and what is in them is names and paths.
func (sizes) EstimateSize(n cost.AstNode) *cost.SizeEstimate {
	if n.ComputedSize() != nil {
		return nil
	}
	limit := uint64(1000) // items, or characters of something inside of data
	path := n.Path()
	if len(path) >= 2 && path[0] == "event" && factFields[path[1]] {
		limit = 50 // items
		if n.Type().Kind() == types.StringKind {
			limit = 200 // characters
		}
	} else if n.Type().Kind() == types.StringKind && len(path) == 2 {
		limit = 64 << 10 // characters of a field of event
		if path[1] == "cwd" || path[1] == "tool" {
			limit = 1000
		}
	}
	s := cost.RangedSizeEstimate(0, limit)
	return &s
}

// factFields are the fields of event that are facts.
var factFields = map[string]bool{
	"commands": true, "paths": true, "reads": true, "writes": true, "deletes": true, "hosts": true, "opaque_reasons": true,
	"secrets": true,
}

// variables are what an expression sees.
type variables struct {
	event, agent, user, delegation, recent object
	now                                    types.Timestamp
}

// ResolveName implements cel.Activation.
func (v *variables) ResolveName(name string) (any, bool) {
	switch name {
	case "event":
		return &v.event, true
	case "agent":
		return &v.agent, true
	case "user":
		return &v.user, true
	case "delegation":
		return &v.delegation, true
	case "recent":
		return &v.recent, true
	case "now":
		return v.now, true
	}
	return nil, false
}

// Parent implements cel.Activation.
func (v *variables) Parent() cel.Activation { return nil }

// work is the cost of the functions that CEL does not know: one step, and one more for every
// ten characters or each item that they may look at.
type work struct{}

// CallCost is the cost of our own functions, nil for those that CEL knows.
func (work) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	if !strings.HasPrefix(function, "@_") && !ownFunctions[function] {
		return nil // a data operator is named after CEL's, as in @_==_
	}
	steps := uint64(1)
	for _, a := range args {
		switch a := a.(type) {
		case types.String:
			steps += uint64(len(a)) / 10
		case traits.Lister:
			steps += uint64(a.Size().(types.Int)) //nolint:gosec // a size is not negative
		}
	}
	return &steps
}

// ownFunctions are those of ruleFunctions that look at every character of their arguments.
var ownFunctions = map[string]bool{
	"lowerAscii": true, "trim": true, "split": true, "join": true, "within": true, "outside": true, "covers": true,
}
