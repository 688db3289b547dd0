package document

import (
	"math"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// Value reads any YAML as it would be in JSON: maps, lists, text, numbers, booleans and nil.
// Rules compare such values with what agents send as JSON, so both have to look alike.
func (r *Reader) Value(n *yaml.Node, name string) any {
	if !r.plain(n) {
		return nil
	}
	switch n.Kind {
	case yaml.MappingNode:
		members, _ := r.AnyMapping(n, strconv.Quote(name), func(*yaml.Node) bool { return true })
		object := make(map[string]any, len(members))
		for key, member := range members {
			object[key] = r.Value(member, name+"."+key)
		}
		return object
	case yaml.SequenceNode:
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			list[i] = r.Value(item, name+"["+strconv.Itoa(i)+"]")
		}
		return list
	}
	return r.plainValue(n, name)
}

// plainValue is a scalar as JSON would have it. What YAML recognises and JSON does not know,
// such as a date, stays text.
func (r *Reader) plainValue(n *yaml.Node, name string) any {
	var v any
	switch n.Tag {
	case "!!null":
		return nil
	case "!!str", "!!timestamp":
		return n.Value
	case "!!int", "!!float", "!!bool":
		if err := n.Decode(&v); err == nil {
			if v, ok := asJSON(v); ok {
				return v
			}
		}
	}
	r.Add(At(n), "Put it in quotes if it is text.", "%q is %s, which JSON has no form for.", name, n.Value)
	return nil
}

// asJSON is a YAML number as JSON has it: whole ones as int64, no infinity.
func asJSON(v any) (any, bool) {
	switch v := v.(type) {
	case int:
		return int64(v), true
	case uint64:
		return float64(v), true
	case float64:
		return v, !math.IsNaN(v) && !math.IsInf(v, 0)
	}
	return v, true
}
