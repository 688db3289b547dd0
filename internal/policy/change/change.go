// Package change makes the changes that a rule asks for: a payload in, the changed payload out.
//
// It must not know which rule it was, or what becomes of the payload.
package change

import "regexp"

// Changes are what a rule changes in the payload of what was asked.
type Changes struct {
	Set     map[string]any // what Merge puts into it
	Replace []Replacement  // then, in this order
	Redact  [][]string     // then: where credentials are replaced by their kind; an empty path is everywhere
}

// Replacement replaces a pattern in a text, or in all texts of a list or object.
type Replacement struct {
	In      []string // the path to it, such as arguments, command
	Pattern *regexp.Regexp
	With    string
}

// Any reports whether there is something to change.
func (c *Changes) Any() bool { return len(c.Set) > 0 || len(c.Replace) > 0 || len(c.Redact) > 0 }

// Apply returns the payload with the changes. hide replaces the credentials in a text. Neither the
// payload nor anything in it is changed.
func (c *Changes) Apply(payload map[string]any, hide func(string) string) map[string]any {
	changed := Merge(payload, c.Set)
	for _, r := range c.Replace {
		by := func(s string) string { return r.Pattern.ReplaceAllString(s, r.With) }
		changed, _ = mapTexts(changed, r.In, by).(map[string]any)
	}
	for _, path := range c.Redact {
		changed, _ = mapTexts(changed, path, hide).(map[string]any)
	}
	return changed
}

// mapTexts returns the value with the texts at a path changed. What is not there is left out.
func mapTexts(value any, path []string, change func(string) string) any {
	switch v := value.(type) {
	case string:
		if len(path) == 0 {
			return change(v)
		}
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = mapTexts(item, path, change)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, item := range v {
			switch {
			case len(path) == 0:
				out[name] = mapTexts(item, nil, change)
			case name == path[0]:
				out[name] = mapTexts(item, path[1:], change)
			default:
				out[name] = item
			}
		}
		return out
	}
	return value
}

// Merge returns the payload with set put into it, as a JSON merge patch (RFC 7396):
// an object is merged member by member, null removes a member, and anything else
// replaces what was there. It changes neither of its arguments.
func Merge(payload, set map[string]any) map[string]any {
	merged := make(map[string]any, len(payload)+len(set))
	for k, v := range payload {
		merged[k] = v
	}
	for k, v := range set {
		switch v := v.(type) {
		case nil:
			delete(merged, k)
		case map[string]any:
			before, _ := merged[k].(map[string]any)
			merged[k] = Merge(before, v)
		default:
			merged[k] = v
		}
	}
	return merged
}
