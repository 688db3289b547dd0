// Package offline reads the conditions of rules that hold while the server cannot be reached. Who decides then is a
// client that has no policy, no counters and no roster, so such a condition names agents and tools and says nothing
// else: what it allows is a list that can be written down.
//
// It reads syntax trees. It must not know what a rule is, or how the list gets to a client.
package offline

import (
	"slices"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"signalbox/internal/facts"
)

// Form is a right condition, for errors.
const Form = `agent.name == "reviewer" && event.tool in ["Read", "Grep"]`

// maxNames is how many agents, and how many tools, one condition may name.
const maxNames = 200

// Names is what a condition allows: the tools of the agents, whatever their arguments are.
type Names struct{ Agents, Tools []string }

// Read reads a condition, nil if it is not of the form: agents and tools by their names, joined by &&, and
// nothing beside.
func Read(e ast.Expr) *Names {
	n := &Names{}
	if !n.add(e) || n.Agents == nil || n.Tools == nil {
		return nil
	}
	return n
}

// add reads one part of a condition, and reports whether it is of the form.
func (n *Names) add(e ast.Expr) bool {
	if e.Kind() != ast.CallKind {
		return false
	}
	args := e.AsCall().Args()
	switch e.AsCall().FunctionName() {
	case operators.LogicalAnd:
		return !slices.ContainsFunc(args, func(part ast.Expr) bool { return !n.add(part) })
	case operators.Equals:
		if args[0].Kind() == ast.LiteralKind {
			args = []ast.Expr{args[1], args[0]}
		}
		return n.set(args[0], args[1:])
	case operators.In:
		return args[1].Kind() == ast.ListKind && n.set(args[0], args[1].AsList().Elements())
	}
	return false
}

// set takes the texts that a field may have. A field that is named twice is not of the form: people would have to
// work out what both allow.
func (n *Names) set(of ast.Expr, texts []ast.Expr) bool {
	if of.Kind() != ast.SelectKind || of.AsSelect().IsTestOnly() || of.AsSelect().Operand().Kind() != ast.IdentKind {
		return false
	}
	to := map[string]*[]string{"agent.name": &n.Agents, "event.tool": &n.Tools}[of.AsSelect().Operand().AsIdent()+"."+
		of.AsSelect().FieldName()]
	if to == nil || *to != nil || len(texts) == 0 || len(texts) > maxNames {
		return false
	}
	for _, one := range texts {
		if one.Kind() != ast.LiteralKind {
			return false
		}
		text, ok := one.AsLiteral().(types.String)
		if !ok || text == "" {
			return false
		}
		*to = append(*to, string(text))
	}
	return true
}

// Harmful are those of the tools that are known to change something, to run something or to send something out.
// Nobody looks at their arguments while the server cannot be reached.
func (n *Names) Harmful() (tools []string) {
	for _, tool := range n.Tools {
		switch facts.ClassOf(tool) {
		case facts.Shell, facts.Write, facts.Edit, facts.Delete, facts.Fetch, facts.Agent:
			tools = append(tools, tool)
		case facts.Read, facts.Search, facts.MCP, facts.Ask, facts.Other:
		}
	}
	return tools
}
