package policy

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/policy/document"
	"signalbox/internal/policy/window"
)

// maxRules is how many rules a policy may have, and maxCounts how many counters they
// may read: each is kept for every agent.
const (
	maxRules  = 10_000
	maxCounts = 100
)

// Policy is a policy that was read and compiled. Parse makes it; it never ends, and is
// replaced as a whole by another one. It does not change, and is safe for concurrent use.
//
// What always holds: every control point has a default. Rule names are unique. Budgets are
// tried first, then the rules, each in the order of the source. The version is the hash of the source, so two policies
// with the same version decide alike.
type Policy struct {
	source   []byte
	version  string
	rules    []*rule
	byPoint  map[Point]*pointIndex
	defaults map[Point]Verdict
	given    map[Point]Action // the defaults that the source names
	counts   []Count
	tools    toolScopes
	found    error

	hasBudgets bool // the first rules are those of budgets
}

// Count is a counter that a policy reads: its name and its window. The caller keeps those
// that Counts lists and no others.
type Count struct {
	What   string
	Window window.Window
}

// Problem is one thing that is wrong with a policy or a test file.
type Problem = document.Problem

// Problems lists what is wrong, from the error of Parse, or of what reads test files.
func Problems(err error) []Problem { return document.Problems(err) }

// policyKeys are the keys of a policy. docs/policy.md explains them.
var policyKeys = []string{"version", "defaults", "tools", "budgets", "rules"}

// reader reads policies and test files. found has what Check reports beyond what Parse refuses.
type reader struct {
	document.Reader
	found document.Reader
}

// Parse reads a policy. Everything that is wrong with it is in the error, each with
// its place: see Problems.
func Parse(source []byte) (*Policy, error) {
	r := &reader{}
	p := &Policy{
		source: slices.Clone(source), version: Hash(source), byPoint: map[Point]*pointIndex{},
		defaults: map[Point]Verdict{},
	}
	lang, err := theLanguage()
	if err != nil {
		return nil, err
	}
	if doc := r.Read(source, "policy"); doc != nil {
		if f, ok := r.Mapping(doc, "The policy", policyKeys...); ok {
			r.Version(doc, f)
			p.setDefaults(r.defaults(f["defaults"]))
			p.tools = r.tools(f["tools"])
			lines := map[string]int{}
			for _, rule := range r.budgets(f["budgets"], lang, lines) {
				p.addRule(rule)
				p.hasBudgets = true
			}
			rules := r.rules(f["rules"], lang, lines)
			for _, rule := range rules {
				p.addRule(rule)
			}
			r.findUnreachable(rules)
			if len(p.counts) > maxCounts {
				r.Add(document.At(cmp.Or(f["rules"], f["budgets"])), "Use the same windows in several rules.",
					"The rules read %d counters of recent, and may read %d.", len(p.counts), maxCounts)
			}
		}
	}
	if err := r.Fault(); err != nil {
		return nil, err
	}
	p.found = r.found.Fault()
	return p, nil
}

// Check is an error about rules that can be run and would not do what is written: those that never
// match, those that change what is not there, and time zones that do not exist. See Problems. A
// policy is checked before it is applied; one that is in force decides all the same.
func (p *Policy) Check() error { return p.found }

// defaults reads what happens where no rule matches.
func (r *reader) defaults(n *yaml.Node) map[Point]Action {
	given := map[Point]Action{}
	if n == nil || n.Tag == "!!null" {
		return given
	}
	f, _ := r.Mapping(n, "defaults", pointNames(Points)...)
	for name, value := range f {
		a := Action(r.OneOf(value, "defaults."+name, string(Allow), string(Block), string(Defer), string(Gate)))
		given[Point(name)] = a
	}
	return given
}

// setDefaults makes the verdict of each control point for which no rule matches.
func (p *Policy) setDefaults(given map[Point]Action) {
	p.given = given
	for _, point := range Points {
		a, ok := given[point]
		if !ok {
			a = point.defaultAction()
		}
		v := Verdict{Action: a, Rule: DefaultRule}
		switch a {
		case Block:
			v.Reason = "No rule allows this, and what no rule allows is blocked at " + string(point) + "."
		case Defer:
			v.Reason, v.RetryAfter = "No rule decides this now. Ask again later.", defaultRetryAfter
		case Gate:
			v.Reason, v.Gate = "No rule decides this, so a person does.", DefaultGate()
		case Allow, Modify:
		}
		p.defaults[point] = v
	}
}

// Default is the verdict of a control point for which no rule matches, and whether the source names it.
func (p *Policy) Default(point Point) (v Verdict, given bool) {
	_, given = p.given[point]
	return p.defaults[point], given
}

// addRule adds a rule at the end, and the counters that it reads.
func (p *Policy) addRule(r *rule) {
	r.place = len(p.rules)
	p.rules = append(p.rules, r)
	for _, point := range r.points {
		if p.byPoint[point] == nil {
			p.byPoint[point] = &pointIndex{}
		}
		p.byPoint[point].add(r)
	}
	if r.when == nil {
		return
	}
	for _, c := range r.when.counts {
		if !slices.Contains(p.counts, c) {
			p.counts = append(p.counts, c)
		}
	}
}

// Source is the policy as it was read.
func (p *Policy) Source() []byte { return slices.Clone(p.source) }

// Version is the Hash of the source.
func (p *Policy) Version() string { return p.version }

// Hash tells policies apart: the SHA-256 of the source, in hexadecimal.
func Hash(source []byte) string {
	sum := sha256.Sum256(source)
	return hex.EncodeToString(sum[:])
}

// Counts lists the counters that the rules read, each once.
func (p *Policy) Counts() []Count { return slices.Clone(p.counts) }

// RuleSummary is a rule as it is listed.
type RuleSummary struct {
	Name   string  `json:"name"`
	Points []Point `json:"on"`
	When   string  `json:"when"`
	Then   Action  `json:"then"`
	Mode   string  `json:"mode"`
	Line   int     `json:"line"`

	Approvers []string `json:"approvers,omitempty"` // of a gate, and those it escalates to
	// OnUnreachable is allow for a rule that also holds while the server cannot be reached.
	OnUnreachable Action `json:"on_unreachable,omitempty"`
	Budget        bool   `json:"budget,omitempty"` // it is one of the section budgets
}

// Rules lists the rules in the order in which they are tried.
func (p *Policy) Rules() []RuleSummary {
	list := make([]RuleSummary, len(p.rules))
	for i, r := range p.rules {
		mode := modeEnforce
		if r.shadow {
			mode = modeShadow
		}
		list[i] = RuleSummary{
			r.name, slices.Clone(r.points), r.text, r.verdict.Action, mode, r.line,
			r.verdict.Gate.allApprovers(), "", r.budget != nil,
		}
		if r.offline != nil {
			list[i].OnUnreachable = Allow
		}
	}
	return list
}

// Rewrites lists the rules after which an agent goes on with something that no rule has seen: those that set or replace
// at action or prompt.
func (p *Policy) Rewrites() (rules []RuleSummary) {
	for i, one := range p.Rules() {
		v := p.rules[i].verdict
		if (slices.Contains(one.Points, OnAction) || slices.Contains(one.Points, OnPrompt)) && v.Rewrites() {
			rules = append(rules, one)
		}
	}
	return rules
}

// Offline are the tools that rules with on_unreachable allow to the agent of that name, each once. What the policy says
// of them beside is not looked at.
func (p *Policy) Offline(agent string) (tools []string) {
	for _, r := range p.rules {
		if r.offline == nil || !slices.Contains(r.offline.Agents, agent) {
			continue
		}
		for _, tool := range r.offline.Tools {
			if !slices.Contains(tools, tool) {
				tools = append(tools, tool)
			}
		}
	}
	return tools
}

// Defaults is what happens at each point where no rule matches.
func (p *Policy) Defaults() map[Point]Action {
	defaults := make(map[Point]Action, len(p.defaults))
	for point, v := range p.defaults {
		defaults[point] = v.Action
	}
	return defaults
}
