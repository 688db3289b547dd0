package policy

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"go.yaml.in/yaml/v3"

	"signalbox/internal/fault"
	"signalbox/internal/policy/document"
	"signalbox/internal/scope"
)

// User is on whose behalf the agent acts, as the roster knows it and never as a request claims: what a call names is
// Event.User. It is empty for an agent that acts for nobody.
type User struct {
	ID        string           `json:"id,omitempty"`
	Name      string           `json:"name,omitempty"`
	Email     string           `json:"email,omitempty"`
	Scopes    []string         `json:"scopes,omitzero"`
	Limits    map[string]int64 `json:"limits,omitempty"`
	Suspended bool             `json:"suspended,omitempty"`
	// Verified is false if a call names somebody for whom the agent may not act. It is bound to its owner then.
	Verified bool `json:"verified,omitempty"`
	// Proof is how it is known that the agent acts for them: owner, key or oidc.
	Proof string `json:"proof,omitempty"`
}

var userType = cel.ObjectType("User")

// userFields are what rules see of the user.
var userFields = map[string]field[User]{
	"id":        {cel.StringType, func(u *User) any { return types.String(u.ID) }},
	"name":      {cel.StringType, func(u *User) any { return types.String(u.Name) }},
	"email":     {cel.StringType, func(u *User) any { return types.String(u.Email) }},
	"scopes":    {texts, func(u *User) any { return u.Scopes }},
	"limits":    {cel.MapType(cel.StringType, cel.IntType), func(u *User) any { return u.Limits }},
	"suspended": {cel.BoolType, func(u *User) any { return types.Bool(u.Suspended) }},
	"verified":  {cel.BoolType, func(u *User) any { return types.Bool(u.Verified) }},
	"proof":     {cel.StringType, func(u *User) any { return types.String(u.Proof) }},
}

// ScopesRule is the name in place of a rule's for the block of a tool whose scopes are missing.
const ScopesRule = "scopes"

// toolScopes says which scopes tools need: by their whole names, and by patterns with a star, in the order of the file.
type toolScopes struct {
	names    map[string][]string
	patterns []toolPattern
}

type toolPattern struct {
	pattern string
	scopes  []string
}

// maxTools is how many tools the table of scopes may have.
const maxTools = 10_000

// tools reads the table of tools with the scopes that they need.
func (r *reader) tools(n *yaml.Node) (t toolScopes) {
	if n == nil || n.Tag == "!!null" {
		return t
	}
	const form = "Write the scopes that it needs as a list, as in send_email: [email.send]."
	t.names = map[string][]string{}
	var order []string
	f, _ := r.AnyMapping(n, "tools", func(key *yaml.Node) bool {
		if CheckTool(key.Value) != nil {
			r.Add(document.At(key), "A tool is a name such as send_email, or a pattern such as mcp__mail__*.",
				"%q is not the name of a tool.", shorten(key.Value))
			return false
		}
		order = append(order, key.Value)
		return true
	})
	if len(f) > maxTools {
		r.Add(document.At(n), "Use patterns.", "There are %d tools, and may be %d.", len(f), maxTools)
	}
	for _, tool := range order {
		var needs []string
		for _, item := range r.List(f[tool], "tools."+tool, form) {
			needs = append(needs, r.Text(item, "tools."+tool, form))
		}
		if err := scope.Check(needs); err != nil {
			r.Add(document.At(f[tool]), form, "%s", fault.From(err).Message)
		}
		if strings.ContainsAny(tool, toolMarks) {
			t.patterns = append(t.patterns, toolPattern{plainTool(tool), needs})
		} else {
			t.names[plainTool(tool)] = needs
		}
	}
	return t
}

// plainTool is the name of a tool, or a pattern, as they are compared: an agent must not get past the table by other
// letters or spaces, and a star stands for slashes too, so that "*" is every tool.
func plainTool(name string) string {
	return strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), "/", "\x00")
}

// CheckTool checks the form of a name or pattern of tools.
func CheckTool(name string) error {
	if _, err := path.Match(name, ""); err != nil || name == "" || len(name) > 200 {
		return fault.New(fault.InvalidPayload,
			"A tool is a name such as send_email, or a pattern such as mcp__mail__*. This one is %.80q.", name).About("tools")
	}
	return nil
}

// FitsTool reports whether a tool is among names and patterns.
func FitsTool(list []string, tool string) bool {
	tool = plainTool(tool)
	return slices.ContainsFunc(list, func(of string) bool {
		fits, err := path.Match(plainTool(of), tool)
		return err == nil && fits
	})
}

// ToolsWithin is the first of these names and patterns that is not within others, "" if all are. A pattern is within
// one that ends with a star and is its beginning; anything else is taken for wider.
func ToolsWithin(list, others []string) string {
	for _, one := range list {
		plain := plainTool(one)
		within := func(of string) bool {
			of = plainTool(of)
			begin, star := strings.CutSuffix(of, "*")
			return plain == of || !strings.ContainsAny(plain, toolMarks) && FitsTool([]string{of}, one) ||
				star && !strings.ContainsAny(begin, toolMarks) && strings.HasPrefix(plain, begin)
		}
		if !slices.ContainsFunc(others, within) {
			return one
		}
	}
	return ""
}

// toolMarks are what makes a name of a tool a pattern.
const toolMarks = `*?[\`

// needs are the scopes that a tool needs: those of its name, else those of the first pattern that fits.
func (t *toolScopes) needs(tool string) []string {
	tool = plainTool(tool)
	if needs, ok := t.names[tool]; ok {
		return needs
	}
	for _, p := range t.patterns {
		if fits, _ := path.Match(p.pattern, tool); fits {
			return p.scopes
		}
	}
	return nil
}

// NeedsScopes reports whether the policy says of any tool which scopes it needs.
func (p *Policy) NeedsScopes() bool { return len(p.tools.names) > 0 || len(p.tools.patterns) > 0 }

// MissingScope is the block of a call whose tool needs a scope that is missing, ok if there is one. Input.Scopes is
// what user, agent and all between them have in common, nil for everything.
func (p *Policy) MissingScope(in *Input) (v Verdict, ok bool) {
	if in.Event.Tool == "" || in.Scopes == nil || !p.NeedsScopes() {
		return v, false
	}
	needs := p.tools.needs(in.Event.Tool)
	if i := slices.IndexFunc(needs, func(s string) bool { return !scope.Has(in.Scopes, s) }); i >= 0 {
		whose := in.Agent.Name
		if in.User.Name != "" {
			whose = in.Agent.Name + " acting for " + in.User.Name
		}
		return Verdict{Action: Block, Rule: ScopesRule, Reason: fmt.Sprintf(
			"The tool %s needs the scope %s, which %s does not have. An operator gives it to the user and to the agent, with "+
				"`signalbox users set` and `signalbox agents set`.", in.Event.Tool, needs[i], whose)}, true
	}
	return v, false
}
