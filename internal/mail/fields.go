package mail

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
	"signalbox/internal/wire"
)

// fields reads the members of an object one by one, and keeps the first error. Members
// that nobody asks for are passed over: clients of every generation have some of their
// own. null is the same as absent.
type fields struct {
	raw    map[string]wire.Raw
	prefix string // before the names in errors, as in "payload."
	err    error

	with []string // a member that was read at the same time
	part map[string]wire.Raw
}

// readFields reads an object. A name that stands there twice is an error of the whole.
// With the name of a member that should be an object, that one is read at the same time.
func readFields(text []byte, with ...string) (*fields, error) {
	levels, err := wire.Nested(text, with...)
	if err != nil {
		e := fault.From(err)
		return nil, fault.Wrap(e.Cause, fault.InvalidRequest, "%s", e.Message).About(e.Field)
	}
	if wire.Depth(text) > amp.MaxNesting-2 {
		return nil, fault.New(fault.InvalidRequest, "Lists and objects are nested more than %d deep. Send what is that deep as text.", amp.MaxNesting-2)
	}
	return &fields{raw: levels[0], with: with, part: levels[len(with)]}, nil
}

func (f *fields) fail(name, format string, args ...any) {
	if f.err == nil {
		f.err = fault.New(fault.InvalidField, "The field %q ", f.prefix+name).About(f.prefix + name)
		e := fault.From(f.err)
		e.Message += fmt.Sprintf(format, args...)
	}
}

func (f *fields) failLong(name string, most int, format string, args ...any) {
	if f.err == nil {
		f.fail(name, format, args...)
		f.err = fault.From(f.err).With("max_length", most)
	}
}

func (f *fields) missing(name, right string) {
	if f.err == nil {
		f.err = fault.New(fault.MissingField, "The field %q is missing. It should be %s.", f.prefix+name, right).About(f.prefix + name)
	}
}

// get is the value of a member that is there.
func (f *fields) get(name string) (wire.Raw, bool) {
	raw, there := f.raw[name]
	return raw, there && raw.Kind() != 'n'
}

// has reports whether a member is there, be it null.
func (f *fields) has(name string) bool {
	_, there := f.raw[name]
	return there
}

// text reads a string; "" when it is absent.
func (f *fields) text(name string, most int) string {
	raw, ok := f.get(name)
	if !ok {
		return ""
	}
	s, ok := wire.Text(raw)
	switch {
	case raw.Kind() != '"':
		f.fail(name, "should be text.")
	case !ok:
		f.fail(name, "contains the character \\u0000, which text may not. Leave it out.")
	case utf8.RuneCountInString(s) > most:
		f.failLong(name, most, "should have at most %d characters, and has %d.", most, utf8.RuneCountInString(s))
	}
	return s
}

// required reads a string that has to be there.
func (f *fields) required(name string, most int, right string) string {
	s := f.text(name, most)
	if s == "" && f.err == nil {
		if _, there := f.get(name); there {
			f.fail(name, "is empty. It should be %s.", right)
		} else {
			f.missing(name, right)
		}
	}
	return s
}

func (f *fields) object(name string) *fields {
	raw, ok := f.get(name)
	if !ok {
		return nil
	}
	if raw.Kind() != '{' {
		f.fail(name, "should be an object.")
		return nil
	}
	members := f.part
	if !slices.Contains(f.with, name) {
		var err error
		if members, err = wire.Members(raw); err != nil && f.err == nil {
			f.err = err
		}
	}
	return &fields{raw: members, prefix: f.prefix + name + "."}
}

// join takes over the error of a part.
func (f *fields) join(part *fields) {
	if part != nil && f.err == nil {
		f.err = part.err
	}
}

func (f *fields) flag(name string) *bool {
	raw, ok := f.get(name)
	if !ok {
		return nil
	}
	if raw.Kind() != 't' && raw.Kind() != 'f' {
		f.fail(name, "should be true or false.")
	}
	yes := raw.Kind() == 't'
	return &yes
}

func (f *fields) texts(name string, most, longest int) []string {
	raw, ok := f.get(name)
	if !ok {
		return nil
	}
	items := []string{}
	err := wire.Unmarshal(raw, &items)
	if raw.Kind() != '[' || err != nil || len(items) > most {
		f.fail(name, "should be a list of at most %d texts.", most)
	}
	for _, item := range items {
		if item == "" || len(item) > longest {
			f.fail(name, "should be a list of texts of 1 to %d bytes.", longest)
		}
	}
	return items
}

var momentForm = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$`)

// time reads a moment, with or without a fraction.
func (f *fields) time(name string) time.Time {
	s := f.text(name, 64)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil || !momentForm.MatchString(s) {
		f.fail(name, "should be a time such as \"2026-03-06T22:10:38Z\", and is %.80q.", s)
	}
	return t
}
