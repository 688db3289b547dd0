package conform

import (
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"signalbox/internal/wire"
)

// message is the members of a JSON object in their order. It is no map, because cases
// send members twice and in an order of their own.
type message []Member

// change applies the changes of a step to a copy of the message.
func (m message) change(s Step) (message, error) {
	m = slices.Clone(m)
	// In the order of names, so that a case sends the same bytes each time.
	for _, name := range slices.Sorted(maps.Keys(s.Set)) {
		text, err := wire.Marshal(s.Set[name])
		if err != nil {
			return nil, err
		}
		m = m.with(name, string(text))
	}
	for _, name := range slices.Sorted(maps.Keys(s.JSON)) {
		m = m.with(name, s.JSON[name])
	}
	for _, name := range slices.Sorted(maps.Keys(s.Long)) {
		m = m.with(name, `"`+strings.Repeat(s.Long[name].Of, s.Long[name].Times)+`"`)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Hex)) {
		text, err := hex.DecodeString(strings.ReplaceAll(s.Hex[name], " ", ""))
		if err != nil {
			return nil, err
		}
		m = m.with(name, string(text))
	}
	m = slices.DeleteFunc(m, func(member Member) bool { return slices.Contains(s.Drop, member.Name) })
	// The copy goes to the end, so that first and last differ for readers that take one of
	// them.
	if i := m.index(s.Twice); i >= 0 {
		m = append(m, m[i])
	}
	return m, nil
}

// index is where a member is, -1 if there is none.
func (m message) index(name string) int {
	return slices.IndexFunc(m, func(member Member) bool { return member.Name == name })
}

// with replaces a member where it is, or appends it. It changes m, which is the
// caller's own copy.
func (m message) with(name, text string) message {
	if i := m.index(name); i >= 0 {
		m[i].JSON = text
		return m
	}
	return append(m, Member{name, text})
}

// encode writes the message in the shape that the step asks for: with other white
// space, in reverse order, or padded to a size. Body replaces all of it.
func (m message) encode(s Step, replace *strings.Replacer) []byte {
	m = slices.Clone(m)
	// White space that JSON allows and few encoders write.
	before, between := "", ","
	switch s.Shape {
	case "reversed":
		slices.Reverse(m)
	case "spaced":
		before, between = "\n\t ", "\r\n ,"
	}
	parts := make([]string, len(m))
	for i, member := range m {
		parts[i] = fmt.Sprintf("%s%q:%s%s", before, member.Name, before, member.JSON)
	}
	text := "{" + strings.Join(parts, between) + before + "}"
	if s.Body != nil {
		text = *s.Body
	}
	text = replace.Replace(text)
	if missing := s.Size - len(text); missing > 0 {
		text += strings.Repeat(" ", missing)
	}
	return []byte(text)
}
