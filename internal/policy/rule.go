package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/policy/budget"
	"signalbox/internal/policy/document"
	"signalbox/internal/policy/offline"
)

// rule is a compiled rule: a condition, and the verdict if it holds. The verdict is shared by
// all decisions of the rule and is never changed.
type rule struct {
	name    string
	points  []Point
	text    string // the condition as it was written
	when    *condition
	verdict Verdict
	shadow  bool
	offline *offline.Names // what it allows while the server cannot be reached, nil for nothing
	budget  *budget.Budget // that the rule is made of, nil for one of the section rules
	line    int
	place   int // among the rules of the policy
}

// ruleKeys are the keys of a rule. docs/policy.md explains them.
var ruleKeys = []string{
	"name", "on", "when", "then", "reason", "set", "replace", "redact", "retry_after", "gate", "mode", "on_unreachable",
}

// The modes of a rule.
const (
	modeEnforce = "enforce"
	modeShadow  = "shadow"
)

var ruleName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,62}$`)

// rules reads the list of rules. lines has the names that are taken.
func (r *reader) rules(n *yaml.Node, lang *language, lines map[string]int) []*rule {
	if n == nil || n.Tag == "!!null" || (n.Kind == yaml.SequenceNode && len(n.Content) == 0) {
		return nil // as when the last of them was commented out
	}
	items := r.List(n, "rules", "Write a list of rules, each beginning with \"- name: …\".")
	if len(items) > maxRules {
		r.Add(document.At(items[maxRules]), "Use fewer rules.", "There are %d rules, and may be %d.",
			len(items), maxRules)
		items = items[:maxRules]
	}
	var rules []*rule
	for _, item := range items {
		one, f := r.rule(item, lang)
		if one == nil {
			continue
		}
		r.unique(one, f, item, lines)
		rules = append(rules, one)
	}
	return rules
}

// unique refuses a name that is taken.
func (r *reader) unique(one *rule, f document.Fields, n *yaml.Node, lines map[string]int) {
	if line, twice := lines[one.name]; twice && one.name != "" {
		r.Add(document.At(f["name"]), "Every decision names its rule, so give each a name of its own.",
			"The name %q is taken by the rule on line %d.", one.name, line)
	}
	lines[one.name] = n.Line
}

// rule reads one rule. It is nil when the item is not even a mapping.
func (r *reader) rule(n *yaml.Node, lang *language) (*rule, document.Fields) {
	f, ok := r.Mapping(n, "A rule", ruleKeys...)
	if !ok {
		return nil, nil
	}
	one := &rule{line: n.Line}
	for _, required := range []struct{ name, hint string }{
		{"name", "Every decision names its rule. Write name: no-root-delete."},
		{"on", "Say where it applies, as in on: [action, tool_call]."},
		{"then", "Write then: with one of " + strings.Join(Actions, ", ") + "."},
	} {
		if f[required.name] == nil {
			r.Add(document.At(n), required.hint, "The rule has no %q.", required.name)
		}
	}
	if name := f["name"]; name != nil {
		one.name = r.ruleName(name)
	}
	if on := f["on"]; on != nil {
		one.points = r.points(on)
	}
	when := f["when"]
	if when == nil { // a rule without a condition always applies
		when = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true", Line: n.Line, Column: n.Column}
	}
	one.text, one.when = r.condition(when, "when", lang, one.points)
	if one.when != nil {
		r.findings(when, one.when)
	}
	if mode := f["mode"]; mode != nil {
		one.shadow = r.OneOf(mode, "mode", modeEnforce, modeShadow) == modeShadow
	}
	one.verdict = r.verdict(one, f)
	if n := f["on_unreachable"]; n != nil {
		one.offline = r.onUnreachable(n, one)
	}
	return one, f
}

// onUnreachable reads what a rule allows while the server cannot be reached. A client decides that alone, by the names
// of agent and tool.
func (r *reader) onUnreachable(n *yaml.Node, one *rule) *offline.Names {
	const key, form = "on_unreachable", "Write a rule such as on: [action], when: '" + offline.Form +
		"', then: allow, on_unreachable: allow."
	elsewhere := slices.ContainsFunc(one.points, func(p Point) bool { return p != OnAction && p != OnToolCall })
	switch {
	case r.OneOf(n, key, string(Allow)) == "" || one.when == nil || one.verdict.Action == "":
	case one.verdict.Action != Allow || one.shadow:
		r.Add(document.At(n), form, "%q goes with then: allow, in a rule that is enforced.", key)
	case elsewhere || !OnAction.in(one.points):
		r.Add(document.At(n), form, "%q goes with on: [action], and on: [action, tool_call].", key)
	case one.when.offline == nil:
		r.Add(document.At(n), form, "While the server cannot be reached, only the names of agent and tool are known: the "+
			"condition of a rule with %q has to name both, each once, and nothing else.", key)
	case one.when.offline.Harmful() != nil:
		r.Add(document.At(n), "Name tools that only read. Nobody looks at the arguments while the server cannot be reached.",
			"%s can do harm, so it cannot be allowed with %q.", strings.Join(one.when.offline.Harmful(), ", "), key)
	default:
		return one.when.offline
	}
	return nil
}

// ruleName reads a name that can stand in a URL, a log and a metric. default is taken by what
// decides when no rule matches.
func (r *reader) ruleName(n *yaml.Node) string {
	const form = "A name is 1 to 63 lower-case letters, digits, dots, hyphens and underscores, as in no-root-delete."
	name := r.Text(n, "name", form)
	switch {
	case name == "":
	case !ruleName.MatchString(name):
		r.Add(document.At(n), form, "A rule cannot be called %q.", shorten(name))
	case name == DefaultRule:
		r.Add(document.At(n), "That is what decides when no rule matches. Choose another.", "A rule cannot be called %q.",
			name)
	default:
		return name
	}
	return ""
}

func shorten(s string) string {
	if runes := []rune(s); len(runes) > 80 {
		return string(runes[:80]) + "…"
	}
	return s
}

// points reads the control points of a rule.
func (r *reader) points(n *yaml.Node) []Point {
	var points []Point
	for _, item := range r.List(n, "on", "Write a list of control points, as in on: [action, tool_call].") {
		p := Point(r.OneOf(item, "on", pointNames(Points)...))
		if p.in(points) {
			r.Add(document.At(item), "Name each once.", "Duplicate control point %q.", p)
			continue
		}
		if p != "" {
			points = append(points, p)
		}
	}
	return points
}

// condition compiles the expression of a rule. A bare true or false is a boolean in
// YAML and an expression in CEL.
func (r *reader) condition(n *yaml.Node, name string, lang *language, points []Point) (string, *condition) {
	const form = `Write a condition such as event.tool == "bash", or true.`
	text, ok := r.Scalar(n, name, form, "!!str", "!!bool")
	if !ok {
		return "", nil
	}
	if strings.TrimSpace(text) == "" {
		r.Add(document.At(n), form, "%q is empty.", name)
		return "", nil
	}
	if n.Tag == "!!bool" {
		text = strings.ToLower(text)
	}
	r.checkComment(n, text, lang)
	compiled, issues := lang.compile(text, points)
	for _, i := range issues {
		r.Add(r.Inside(n, i.offset), i.hint, "%s", i.message)
	}
	return text, compiled
}

// checkComment refuses a comment that covers more than it seems to. YAML joins the lines of a
// condition unless they follow a |, so that everything after // would be comment: a rule that
// looks as if it had two conditions would have one.
func (r *reader) checkComment(n *yaml.Node, text string, lang *language) {
	if len(text) > maxExpression || r.Inside(n, 0).Line == r.Inside(n, utf8.RuneCountInString(text)).Line {
		return // too long to be taken, or on one line
	}
	parts := strings.SplitN(text, "//", 32) // more would take long, and nobody writes them
	for i := 1; i < len(parts); i++ {
		before := strings.Join(parts[:i], "//")
		if _, issues := lang.env.Parse(before); issues.Err() != nil {
			continue // inside of a text, as in "https://"
		}
		comment, _, _ := strings.Cut(text[len(before):], "\n")
		begin := utf8.RuneCountInString(before)
		if from := r.Inside(n, begin); from.Line != r.Inside(n, begin+utf8.RuneCountInString(comment)).Line {
			r.Add(from, "Write when: | and the condition below it, which keeps the lines apart.",
				"This comment also covers the lines after it.")
			return
		}
	}
}

// verdict reads what the rule does when it matches.
func (r *reader) verdict(one *rule, f document.Fields) Verdict {
	v := Verdict{Rule: one.name}
	if reason := f["reason"]; reason != nil {
		v.Reason = r.Text(reason, "reason", "Write a sentence for whoever must act on it.")
	}
	then := f["then"]
	if then == nil {
		return v
	}
	if v.Action = Action(r.OneOf(then, "then", Actions...)); v.Action == "" {
		return v
	}
	r.checkFields(one, v.Action, f)
	switch v.Action {
	case Modify, Allow:
		v.Changes = r.changes(one, f)
		if v.Action == Modify && f["gate"] != nil { // a person sees what is changed, before it goes on
			v.Action, v.Gate = Gate, r.gate(f["gate"], one.points)
		}
	case Defer:
		v.RetryAfter = defaultRetryAfter
		if after := f["retry_after"]; after != nil {
			v.RetryAfter = r.Duration(after, "retry_after")
		}
	case Gate:
		v.Gate = r.gate(f["gate"], one.points)
	case Block:
	}
	if v.Reason == "" {
		v.Reason = ordinaryReason(v.Action, one.name)
	}
	return v
}

// ordinaryReason is the reason of a rule that has none.
func ordinaryReason(a Action, name string) string {
	switch a {
	case Block:
		return fmt.Sprintf("The rule %q blocks this.", name)
	case Modify:
		return fmt.Sprintf("The rule %q changes this.", name)
	case Defer:
		return fmt.Sprintf("The rule %q puts this off. Ask again later.", name)
	case Gate:
		return fmt.Sprintf("The rule %q asks a person.", name)
	case Allow:
	}
	return ""
}

// checkFields refuses fields that have no effect with this action, and a modify at a point where
// nothing can be changed.
func (r *reader) checkFields(one *rule, a Action, f document.Fields) {
	only := func(field string, fitting bool, hint string) {
		if n := f[field]; n != nil && !fitting {
			r.Add(document.At(n), hint, "%q has no effect with then: %s.", field, a)
		}
	}
	hints := a == Allow && len(one.points) > 0 && !slices.ContainsFunc(one.points, func(p Point) bool {
		return !p.in(hinting)
	})
	only("set", a == Modify || hints,
		"It goes with then: modify, and with then: allow on "+strings.Join(pointNames(hinting), ", ")+".")
	only("retry_after", a == Defer, "It goes with then: defer.")
	only("replace", a == Modify, "It goes with then: modify.")
	only("redact", a == Modify, "It goes with then: modify.")
	only("gate", a == Gate || a == Modify, "It goes with then: gate, and with then: modify.")
	if a != Modify {
		return
	}
	if f["set"] == nil && f["replace"] == nil && f["redact"] == nil {
		r.Add(document.At(f["then"]), "Add set: with the members to change, as in set: {arguments: {dry_run: true}}, "+
			"replace: or redact:.", "then: modify needs %q, %q or %q.", "set", "replace", "redact")
	}
	for _, p := range one.points {
		if !p.in(modifiable) {
			r.Add(document.At(f["then"]), "A rule can modify on "+strings.Join(pointNames(modifiable), ", ")+".",
				"then: modify is not possible on %s.", p)
		}
	}
}

// changes reads what a rule changes.
func (r *reader) changes(one *rule, f document.Fields) (c Changes) {
	if n := f["set"]; n != nil {
		c.Set = r.set(n)
		r.checkSet(n, one.points)
	}
	if n := f["replace"]; n != nil {
		c.Replace = r.replacements(n, one.points)
	}
	if n := f["redact"]; n != nil {
		c.Redact = r.redactions(n, one.points)
	}
	return c
}

// set reads the merge patch of a rule. Null is meaningful in it: it removes a member.
func (r *reader) set(n *yaml.Node) map[string]any {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		r.Add(document.At(n), "Write the members to change, as in set: {arguments: {dry_run: true}}.",
			"%q should be a mapping with members, and is %s.", "set", document.KindOf(n))
		return nil
	}
	members, _ := r.Value(n, "set").(map[string]any)
	return members
}
