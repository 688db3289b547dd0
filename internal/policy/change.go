package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/fault"
	"signalbox/internal/policy/change"
	"signalbox/internal/policy/document"
)

// Changes are what a rule changes in the payload of what was asked.
type Changes = change.Changes

// Replacement replaces a pattern in a text, or in all texts of a list or object.
type Replacement = change.Replacement

// Merge is change.Merge.
func Merge(payload, set map[string]any) map[string]any { return change.Merge(payload, set) }

// replaceForm is the hint of what replace looks like.
const replaceForm = `Write a list, as in replace: [{in: arguments.command, pattern: "--force\\b", ` +
	`with: "--force-with-lease"}].`

// replacements reads the list of replacements of a rule.
func (r *reader) replacements(n *yaml.Node, points []Point) (all []Replacement) {
	for _, item := range r.List(n, "replace", replaceForm) {
		f, ok := r.Mapping(item, "replace", "in", "pattern", "with")
		if !ok {
			continue
		}
		for _, name := range []string{"in", "pattern", "with"} {
			if f[name] == nil {
				r.Add(document.At(item), replaceForm, "A replacement has no %q.", name)
			}
		}
		var one Replacement
		if n := f["in"]; n != nil {
			one.In = r.payloadPath(n, "in", points)
		}
		if n := f["with"]; n != nil {
			one.With, _ = r.Scalar(n, "with", "Write the text that comes in its place.", "!!str")
		}
		if n := f["pattern"]; n != nil {
			text := r.Text(n, "pattern", "Write a pattern of RE2.")
			compiled, err := regexp.Compile(text)
			if err != nil {
				r.Add(
					document.At(n),
					"Patterns are those of RE2.",
					"%s.",
					upperFirst(strings.TrimPrefix(err.Error(), "error parsing regexp: ")),
				)
				continue
			}
			one.Pattern = compiled
		}
		if one.Pattern != nil {
			all = append(all, one)
		}
	}
	return all
}

// redactions reads where a rule replaces credentials: true for everywhere, or a list of paths.
func (r *reader) redactions(n *yaml.Node, points []Point) (all [][]string) {
	if n.Tag == "!!bool" {
		if r.Bool(n, "redact") {
			return [][]string{nil}
		}
		return nil
	}
	const form = "Write redact: true, or a list of places, as in redact: [arguments.command]."
	for _, item := range r.List(n, "redact", form) {
		if path := r.payloadPath(item, "redact", points); path != nil {
			all = append(all, path)
		}
	}
	return all
}

// payloadPath reads a place in the payload, such as arguments.command.
func (r *reader) payloadPath(n *yaml.Node, name string, points []Point) []string {
	text := r.Text(n, name, "Write a place in the payload, such as arguments.command or prompt.")
	if text == "" {
		return nil
	}
	path := strings.Split(text, ".")
	if slices.Contains(path, "") {
		r.Add(
			document.At(n),
			"Write a place in the payload, such as arguments.command or prompt.",
			"%q is not a place.",
			text,
		)
		return nil
	}
	r.checkMember(n, path[0], points)
	return path
}

// members are the members of the payload at the points where rules can change it, with what they are.
// Others would be put in, and no client would look at them.
var members = map[Point]map[string]string{
	OnAction: {
		"tool_name": "text", "tool": "text", "arguments": "a map", "working_directory": "text", "action_type": "text",
		"context": "a map", "command": "text", "path": "text", "url": "text",
	},
	OnPrompt: {
		"prompt": "text", "system_prompt": "text", "model": "text", "model_name": "text", "model_provider": "text",
		"working_directory": "text", "context": "a map", "max_tokens": "a number", "temperature": "a number",
	},
}

// checkMember finds a member that the payload does not have at any of the points.
func (r *reader) checkMember(n *yaml.Node, name string, points []Point) {
	var known []string
	for _, p := range points {
		if members[p] == nil {
			return
		}
		known = append(known, sortedKeys(members[p])...)
	}
	// Agents may have members of their own; a name that is nearly one of these is a mistake.
	if near := fault.Nearest(name, known); !slices.Contains(known, name) && near != "" {
		r.finding(document.At(n), fmt.Sprintf("Did you mean %q?", near), "The payload has no member %q on %s.", name,
			strings.Join(pointNames(points), ", "))
	}
}

// checkSet finds members that are not there, or are of another type.
func (r *reader) checkSet(n *yaml.Node, points []Point) {
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		r.checkMember(key, key.Value, points)
		for _, p := range points {
			want := members[p][key.Value]
			if got := kindWords(value); want != "" && value.Tag != "!!null" && got != want {
				r.finding(
					document.At(value),
					fmt.Sprintf("Write %s, or null to take it away.", want),
					"%q should be %s on %s, and is %s.",
					key.Value,
					want,
					p,
					document.KindOf(value),
				)
			}
		}
	}
}

// kindWords is what a node is, in the words of members.
func kindWords(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a map"
	case n.Tag == "!!int" || n.Tag == "!!float":
		return "a number"
	case n.Tag == "!!str":
		return "text"
	}
	return ""
}
