package policy

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/types"
	"github.com/google/go-cmp/cmp"

	"signalbox/internal/policy/budget"
	"signalbox/internal/testbed"
)

// The page for people who write rules lists everything that a rule can name. What it lists is
// compared with what the code has, in both directions, with the types.
func TestThePageAboutPoliciesListsEverythingThatARuleCanName(t *testing.T) {
	source := testbed.Read(t, "../../docs/policy.md")
	page := string(source)
	lang, err := theLanguage()
	if err != nil {
		t.Fatal(err)
	}
	functions := slices.DeleteFunc(lang.functionNames(), func(name string) bool { return counters[name] != nil })
	for _, c := range []struct {
		what, heading, head string
		want                []string
		types               bool // the second column has the type
	}{
		{"fields of event", "### event", "field", fieldRows("event.", typesOf(eventFields)), true},
		{"fields of delegation", "### delegation", "field", fieldRows("delegation.", typesOf(delegationFields)), true},
		{"fields of agent", "### agent", "field", fieldRows("agent.", typesOf(agentFields)), true},
		{"counters", "### recent", "function", sortedKeys(counters), false},
		{"functions", "### Functions", "function", functions, false},
		{"control points", "## Control points", "`on:`", pointNames(Points), false},
		{"keys of a policy", "## The file", "key", policyKeys, false},
		{"keys of a rule", "## The file", "key of a rule", ruleKeys, false},
		{"keys of a budget", "## Budgets", "key of a budget", budget.Keys, false},
		{"keys of a gate", "### gate", "key of `gate`", GateKeys, false},
	} {
		var got []string
		for _, row := range tableRows(page, c.heading, c.head) {
			for _, name := range namesIn(row[0]) {
				if c.types {
					name += ": " + row[1]
				}
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if diff := cmp.Diff(slices.Sorted(slices.Values(c.want)), got); diff != "" {
			t.Errorf("%s (-code +page):\n%s", c.what, diff)
		}
	}
	for _, action := range Actions {
		if !strings.Contains(page, "\n### "+action+"\n") {
			t.Errorf("the page does not explain then: %s", action)
		}
	}
}

// tableRows are the cells of the table with this first heading cell, below a heading.
func tableRows(page, heading, head string) (rows [][]string) {
	_, below, _ := strings.Cut(page, "\n"+heading+"\n")
	_, body, _ := strings.Cut(below, "\n| "+head+" |")
	for line := range strings.Lines(body) {
		if !strings.HasPrefix(line, "|") {
			if len(rows) > 0 {
				break
			}
			continue // the rest of the heading row
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if !strings.HasPrefix(cells[0], "--") {
			rows = append(rows, cells)
		}
	}
	return rows
}

var nameInCell = regexp.MustCompile("`(?:recent\\.)?([a-zA-Z_.]+)(?:\\([a-z.]+\\))?`")

// namesIn are the names in a cell, without what they are called with.
func namesIn(cell string) (names []string) {
	for _, m := range nameInCell.FindAllStringSubmatch(cell, -1) {
		names = append(names, m[1])
	}
	return names
}

func fieldRows(owner string, fields map[string]*cel.Type) (rows []string) {
	for name, typ := range fields {
		rows = append(rows, owner+name+": "+pageType(typ))
	}
	return rows
}

// pageType is a type as the page calls it.
func pageType(t *cel.Type) string {
	of := func(i int) string {
		if t.Parameters()[i].Kind() == types.StringKind {
			return " of text"
		}
		return ""
	}
	switch t.Kind() {
	case types.ListKind:
		return "list" + of(0)
	case types.MapKind:
		return "map" + of(1)
	}
	return strings.TrimPrefix(TypeWords(t), "a ")
}
