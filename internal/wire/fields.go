package wire

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"signalbox/internal/fault"
)

// Fields reads the members of a JSON object one by one and notes every mistake, each with
// what a right value looks like. It is for documents of a protocol that reports all mistakes
// at once; our own calls decode into a struct (ReadJSON). A member that is null counts as
// absent. Methods return the zero value for what is wrong; nothing that was read may be used
// before Err has returned nil.
type Fields struct {
	Members map[string]Raw
	// Form names the members that are looked at, true for those that have to be there.
	Form map[string]bool

	wrong map[string]string
}

// Fail notes what is wrong with a field. format goes on after its name, as in "should be …".
func (f *Fields) Fail(name, format string, args ...any) {
	if f.wrong == nil {
		f.wrong = map[string]string{}
	}
	f.wrong[name] = fmt.Sprintf("The field %q ", name) + fmt.Sprintf(format, args...)
}

// Failed reports whether something is wrong with a field.
func (f *Fields) Failed(name string) bool { return f.wrong[name] != "" }

// Err is the error about all that is wrong, nil when nothing is. Its details hold a
// sentence for every field.
func (f *Fields) Err() error {
	if len(f.wrong) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(f.wrong))
	message := f.wrong[names[0]]
	if n := len(names) - 1; n > 0 {
		message += fmt.Sprintf(" (And %d more wrong, in details.fields: %s.)", n, strings.Join(names[1:], ", "))
	}
	return fault.New(fault.InvalidPayload, "%s", message).About(names[0]).With("fields", f.wrong)
}

// Unknown are the names of the members that the form does not have, in order.
func (f *Fields) Unknown() []string {
	var unknown []string
	for name := range f.Members {
		if _, known := f.Form[name]; !known {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// Has reports whether a field has a value. One that is null has none.
func (f *Fields) Has(name string) bool {
	raw, there := f.Members[name]
	return there && raw.Kind() != 'n'
}

// Get is the value of a field, if it is present and part of the form. A required field that is
// absent is a mistake; right says what the field should be.
func (f *Fields) Get(name string, right func() string) (Raw, bool) {
	required, known := f.Form[name]
	raw, there := f.Members[name]
	if known && there && raw.Kind() != 'n' {
		return raw, true
	}
	if required {
		state := "is missing"
		if there {
			state = "is null"
		}
		f.Fail(name, "%s. It should be %s.", state, right())
	}
	return nil, false
}

// Text reads a string of 1 to most characters.
func (f *Fields) Text(name string, most int, example string) string {
	right := func() string { return fmt.Sprintf("text of 1 to %d characters, such as %q", most, example) }
	raw, ok := f.Get(name, right)
	if !ok {
		return ""
	}
	if raw.Kind() != '"' {
		f.Fail(name, "should be %s, and is %s.", right(), kindOf(raw))
		return ""
	}
	s, ok := Text(raw)
	if !ok { // it is text, so there is but one thing wrong
		f.Fail(name, "contains the character \\u0000, which is not allowed in text. Leave it out.")
		return ""
	}
	if n := utf8.RuneCountInString(s); strings.TrimSpace(s) == "" || n > most {
		f.Fail(name, "should be %s, and has %d characters.", right(), n)
	}
	return s
}

// Matching reads a string for which a condition holds. right says which.
func (f *Fields) Matching(name string, right func() string, holds func(string) bool) string {
	raw, ok := f.Get(name, right)
	if !ok {
		return ""
	}
	s, ok := Text(raw)
	if !ok || !holds(s) {
		f.Fail(name, "should be %s, and is %.80s.", right(), raw)
		return ""
	}
	return s
}

// Word reads one of a few strings.
func (f *Fields) Word(name string, known ...string) string {
	return f.Matching(name, func() string {
		return "one of " + strings.Join(known, ", ")
	}, func(s string) bool { return slices.Contains(known, s) })
}

// URL reads an http or https address. Whether it may be called is checked when it is called.
func (f *Fields) URL(name string, most int) string {
	return f.Matching(name, func() string {
		return "an http or https address, such as \"https://example.com/hooks/amp\""
	}, func(s string) bool {
		u, err := url.Parse(s)
		return len(s) <= most && err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https")
	})
}

// Number reads a number in the way that parse does. right says which numbers those are.
func (f *Fields) Number(name, right string, parse func(Raw) (int64, bool)) int64 {
	raw, ok := f.Get(name, func() string { return right })
	if !ok {
		return 0
	}
	n, ok := parse(raw)
	if !ok {
		f.Fail(name, "should be %s, and is %.80s.", right, raw)
	}
	return n
}

// Count reads a whole number, 0 or more.
func (f *Fields) Count(name string) int64 {
	return f.Number(name, "a whole number, 0 or more, such as 1842", ParseCount)
}

// ParseCount reads a whole number, 0 or more, that every client can hold.
func ParseCount(raw Raw) (n int64, ok bool) {
	if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil && n >= 0 && n < 1<<53 {
		return n, true
	}
	// 1842.0 is the same number.
	x, err := strconv.ParseFloat(string(raw), 64)
	if raw.Kind() != '0' || err != nil || x < 0 || x != math.Trunc(x) || x >= 1<<53 {
		return 0, false
	}
	return int64(x), true
}

// Flag reads true or false.
func (f *Fields) Flag(name string) bool {
	raw, ok := f.Get(name, func() string { return "true or false" })
	if ok && raw.Kind() != 't' && raw.Kind() != 'f' {
		f.Fail(name, "should be true or false, and is %.80s.", raw)
	}
	return ok && raw.Kind() == 't'
}

// List reads a list of values, which are not looked into.
func (f *Fields) List(name string, most int, example string) []Raw {
	right := func() string { return fmt.Sprintf("a list of at most %d items, such as [%s]", most, example) }
	raw, ok := f.Get(name, right)
	if !ok {
		return nil
	}
	var items []Raw
	if raw.Kind() != '[' || Unmarshal(raw, &items) != nil {
		f.Fail(name, "should be %s, and is %s.", right(), kindOf(raw))
		return nil
	}
	if len(items) > most {
		f.Fail(name, "should be %s, and has %d.", right(), len(items))
	}
	return items
}

// Texts reads a list of short texts.
func (f *Fields) Texts(name string, most, longest int, example string) []string {
	right := func() string {
		return fmt.Sprintf("a list of at most %d texts of 1 to %d characters, such as [%q]", most, longest, example)
	}
	raw, ok := f.Get(name, right)
	if !ok {
		return nil
	}
	var items []string
	if Unmarshal(raw, &items) != nil || len(items) > most || slices.ContainsFunc(items, func(s string) bool {
		return s == "" || utf8.RuneCountInString(s) > longest
	}) {
		f.Fail(name, "should be %s.", right())
	}
	return items
}

// Object reads an object, which is not looked into.
func (f *Fields) Object(name, example string) Raw {
	right := func() string { return "an object, such as " + example }
	raw, ok := f.Get(name, right)
	if ok && raw.Kind() != '{' {
		f.Fail(name, "should be %s, and is %s.", right(), kindOf(raw))
	}
	return raw
}

// kinds are the kinds of JSON values in plain words, by their first character.
var kinds = map[byte]string{
	'n': "null", 't': "true", 'f': "false", '"': "text", '0': "a number", '{': "an object",
	'[': "a list",
}

func kindOf(raw Raw) string { return kinds[byte(raw.Kind())] }
