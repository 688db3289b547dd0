package engine

import (
	"slices"

	"signalbox/internal/wire"
)

// object is a JSON object that is being written to b. The first error stays in err.
type object struct {
	b   []byte
	err error
}

// name writes the name of the next member. Names are written in the order of the calls.
func (o *object) name(name string) {
	// A brace can only be the one that opened this object: values never end with one that
	// opens.
	if o.b[len(o.b)-1] != '{' {
		o.b = append(o.b, ',')
	}
	o.b = append(wire.AppendText(o.b, name), ':')
}

// text writes a member that is a string.
func (o *object) text(name, text string) {
	o.name(name)
	o.b = wire.AppendText(o.b, text)
}

// textOrNull writes a string, or null if it is empty.
func (o *object) textOrNull(name, text string) {
	if text == "" {
		o.any(name, nil)
		return
	}
	o.text(name, text)
}

// action writes the member action.
func (o *object) action(a *Action) {
	o.name("action")
	if a == nil {
		o.b = append(o.b, "null"...)
		return
	}
	o.b = append(o.b, '{')
	o.text("id", a.ID)
	o.text("kind", string(a.Kind))
	o.text("title", a.Title)
	o.any("detail", a.Detail)
	o.b = append(o.b, '}')
}

// any writes a value of any type. The types that most events have are written directly;
// the rest is left to wire.
func (o *object) any(name string, v any) {
	o.name(name)
	switch v := v.(type) {
	case nil:
		o.b = append(o.b, "null"...)
	case string:
		o.b = wire.AppendText(o.b, v)
	case wire.Raw:
		o.b = append(o.b, v...)
	case *bool:
		o.b = append(o.b, truth(v)...)
	case map[string]any:
		o.members(v)
	default:
		text, err := wire.EncodeData(v)
		if err != nil && o.err == nil {
			o.err = err
		}
		o.b = append(o.b, text...)
	}
}

// truth is a flag as JSON, null if it is not set.
func truth(v *bool) string {
	switch {
	case v == nil:
		return "null"
	case *v:
		return "true"
	}
	return "false"
}

// members writes a map in the order of its names, so that the same event is always the
// same bytes.
func (o *object) members(m map[string]any) {
	if m == nil {
		o.b = append(o.b, "null"...)
		return
	}
	names := make([]string, 0, 8)
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	o.b = append(o.b, '{')
	for _, name := range names {
		o.any(name, m[name])
	}
	o.b = append(o.b, '}')
}
