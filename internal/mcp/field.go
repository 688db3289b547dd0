package mcp

import "slices"

// object is a JSON object.
type object = map[string]any

// Arguments are described in the part of JSON Schema that the APIs of models accept: objects, lists, texts, numbers
// and lists of words, each with a description, and nothing that combines or refers to schemas. What a value must look
// like beyond that is in the description, and the refusal of a wrong one says it again.

// text is an argument that is text.
func text(about string) object { return object{"type": "string", "description": about} }

// word is a text of 1 to most characters.
func word(most int, about string) object {
	return object{"type": "string", "minLength": 1, "maxLength": most, "description": about}
}

// oneOf is one of some words.
func oneOf(about string, words ...string) object {
	return object{"type": "string", "enum": words, "description": about}
}

// number is a whole number of least or more.
func number(least int, about string) object {
	return object{"type": "integer", "minimum": least, "description": about}
}

// seconds is how long a tool waits.
func seconds(most int, about string) object {
	return object{"type": "integer", "minimum": 0, "maximum": most, "description": about}
}

// yesOrNo is true, false or null in words: some APIs take no value of two types, and models read null as nothing.
func yesOrNo(about string) object { return oneOf(about, "yes", "no", "unverified") }

// inJSON is a value of yesOrNo as the protocol has it. Other values are left for its rules.
func inJSON(value any) any {
	switch value {
	case "yes":
		return true
	case "no":
		return false
	case "unverified":
		return nil
	}
	return value
}

// list is a list of things that are alike.
func list(about string, of object) object {
	return object{"type": "array", "items": of, "description": about}
}

// group is an object with these fields, of which some must be there.
func group(about string, fields object, required ...string) object {
	out := object{"type": "object", "properties": fields, "additionalProperties": false}
	if len(required) > 0 {
		out["required"] = slices.Clone(required)
	}
	if about != "" {
		out["description"] = about
	}
	return out
}
