package wire

import "slices"

// Member is a member of an object whose value is JSON already.
type Member struct {
	Name  string
	Value Raw
}

// Splice adds members to the end of an encoded object, each with its value byte for byte: an
// encoder would rewrite it. Members without a value are left out. The result may use the
// memory of object.
func Splice(object []byte, members ...Member) []byte {
	room := 0
	for _, m := range members {
		room += len(m.Name) + len(m.Value) + len(`,"":`)
	}
	text := slices.Grow(object[:len(object)-1], room+1)
	for _, m := range members {
		if m.Value == nil {
			continue
		}
		if len(text) > 1 {
			text = append(text, ',')
		}
		text = append(AppendText(text, m.Name), ':')
		text = append(text, m.Value...)
	}
	return append(text, '}')
}
