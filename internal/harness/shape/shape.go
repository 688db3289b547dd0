package shape

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/wire"
)

// Shape checks that a JSON value has the form that AHP fixes. The error is a *misfit
// that says where and what would fit. Members that a shape does not name are ignored
// (AHP-7). raw must be valid JSON.
type Shape func(raw wire.Raw) error

// Member is one member of an object shape.
type Member struct {
	name  string
	shape Shape
	need  need
}

// need says whether a member may be absent.
type need int

const (
	required need = iota
	optional      // null is the same as absent
	absent        // may be absent but not null
)

// req, opt and dflt make the three kinds of members; see need.
func req(name string, s Shape) Member  { return Member{name, s, required} }
func opt(name string, s Shape) Member  { return Member{name, s, optional} }
func dflt(name string, s Shape) Member { return Member{name, s, absent} }

// misfit is the error about a value that does not fit: the path to it, and what would
// fit. Its text goes to the agent.
type misfit struct{ path, text string }

func (m *misfit) Error() string {
	if m.path == "" {
		return m.text
	}
	return m.path + ": " + m.text
}

// Misfitf makes a misfit about the value itself. Within adds the path on the way out.
func Misfitf(format string, args ...any) error { return &misfit{"", fmt.Sprintf(format, args...)} }

// Within puts the name of a member, or the index of an item, before the path of a
// misfit.
func Within(name string, err error) error {
	m, ok := err.(*misfit) //nolint:errorlint // shapes return nothing else, and do not wrap
	if !ok {
		return &misfit{name, err.Error()}
	}
	path := name
	if m.path != "" {
		path += "." + m.path
	}
	return &misfit{path, m.text}
}

// free fits any JSON.
func free(wire.Raw) error { return nil }

// text fits a string. NUL is refused because no database stores it.
func text(raw wire.Raw) error {
	if _, ok := wire.Text(raw); !ok {
		return Misfitf("should be a string without NUL, and is %s", Beginning(raw))
	}
	return nil
}

// flag fits true and false.
func flag(raw wire.Raw) error {
	if k := raw.Kind(); k != 't' && k != 'f' {
		return Misfitf("should be true or false, and is %s", Beginning(raw))
	}
	return nil
}

// number fits any number that a float64 can hold.
func number(raw wire.Raw) error {
	if _, err := strconv.ParseFloat(string(raw), 64); raw.Kind() != '0' || err != nil {
		return Misfitf("should be a number, and is %s", Beginning(raw))
	}
	return nil
}

// whole fits an integer of 0 or more, of so many bits, written without fraction or
// exponent: the reference decoder refuses 1.0.
func whole(bits int) Shape {
	return func(raw wire.Raw) error {
		if _, err := strconv.ParseUint(string(raw), 10, bits); raw.Kind() != '0' || err != nil {
			return Misfitf("should be a whole number, 0 or more, of %d bits, and is %s", bits, Beginning(raw))
		}
		return nil
	}
}

// signed fits an integer of so many bits, written without fraction or exponent.
func signed(bits int) Shape {
	return func(raw wire.Raw) error {
		if _, err := strconv.ParseInt(string(raw), 10, bits); raw.Kind() != '0' || err != nil {
			return Misfitf("should be a whole number of %d bits, and is %s", bits, Beginning(raw))
		}
		return nil
	}
}

// dict fits any object.
func dict(raw wire.Raw) error {
	if raw.Kind() != '{' {
		return Misfitf("should be an object, and is %s", Beginning(raw))
	}
	return nil
}

// list fits a list whose items all fit.
func list(item Shape) Shape {
	return func(raw wire.Raw) error {
		if raw.Kind() != '[' {
			return Misfitf("should be a list, and is %s", Beginning(raw))
		}
		var items []wire.Raw
		if err := wire.UnmarshalPart(raw, &items); err != nil {
			return Misfitf("should be a list: %s", err)
		}
		for i, one := range items {
			if err := item(one); err != nil {
				return Within(strconv.Itoa(i), err)
			}
		}
		return nil
	}
}

// word fits one of these strings, compared exactly.
func word(known ...string) Shape {
	return func(raw wire.Raw) error {
		if got, ok := wire.Text(raw); !ok || !slices.Contains(known, got) {
			return Misfitf("should be one of %s, and is %s", strings.Join(known, ", "), Beginning(raw))
		}
		return nil
	}
}

// wordOr fits one of these strings, or an object with one member that holds a text of
// the agent's own, such as {"custom": "…"}.
func wordOr(other string, known ...string) Shape {
	own, plain := object(req(other, text)), word(known...)
	return func(raw wire.Raw) error {
		if raw.Kind() != '{' {
			return plain(raw)
		}
		if members, err := wire.Members(raw); err != nil || len(members) != 1 {
			return Misfitf(`should be one of %s, or {%q: "…"}`, strings.Join(known, ", "), other)
		}
		return own(raw)
	}
}

// oneKey fits an object with exactly one member, whose name selects the shape of its
// value. Its only use is the target of context_perception, so the error lists those
// keys.
func oneKey(variants map[string]Shape) Shape {
	return func(raw wire.Raw) error {
		members, err := wire.Members(raw)
		if err != nil || len(members) != 1 {
			return Misfitf("should be an object with one of the keys entity, location, event, relation, "+
				"rule, state, resource, pattern, and is %s", Beginning(raw))
		}
		for name, value := range members {
			variant := variants[name]
			if variant == nil {
				return Misfitf("has the key %.40q, and should have entity, location, event, "+
					"relation, rule, state, resource or pattern", name)
			}
			if err := variant(value); err != nil {
				return Within(name, err)
			}
		}
		return nil
	}
}

// object fits an object with these members, and perhaps others.
func object(members ...Member) Shape {
	return func(raw wire.Raw) error {
		if raw.Kind() != '{' {
			return Misfitf("should be an object, and is %s", Beginning(raw))
		}
		got, err := wire.Members(raw)
		if err != nil {
			return Misfitf("should be an object: %s", err)
		}
		return Fits(got, members)
	}
}

// Fits checks the members of an object.
func Fits(got map[string]wire.Raw, members []Member) error {
	for _, m := range members {
		value, there := got[m.name]
		switch {
		case !there && m.need == required:
			return Within(m.name, Misfitf("is missing"))
		case !there, m.need == optional && value.Kind() == 'n':
			continue
		}
		if err := m.shape(value); err != nil {
			return Within(m.name, err)
		}
	}
	return nil
}

// Beginning is the beginning of a value, for an error message.
func Beginning(raw wire.Raw) string {
	const most = 60
	if len(raw) > most {
		return strings.ToValidUTF8(string(raw[:most]), "") + "…"
	}
	return string(raw)
}
