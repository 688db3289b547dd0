package amp

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// Fields reads the members of a JSON object one by one, and keeps the first error in Err, so that
// a caller reads everything and checks once. MSG-5: members that nobody asks for are ignored,
// since clients of every generation send some of their own, and null means absent.
type Fields struct {
	Prefix string // before the names in errors, as in "payload."
	Err    error

	raw  map[string]wire.Raw
	with []string            // the name of a member that was read in the same pass, if any
	part map[string]wire.Raw // the members of that member
}

// ReadFields reads an object. MSG-6: a duplicate name, at any depth, is an error. The optional
// name is that of a member that should be an object; it is read in the same pass, which spares
// the payload of every message a second one.
func ReadFields(text []byte, with ...string) (*Fields, error) {
	levels, err := wire.Nested(text, with...)
	if err != nil {
		e := fault.From(err)
		return nil, fault.Wrap(e.Cause, fault.InvalidRequest, "%s", e.Message).About(e.Field)
	}
	if wire.Depth(text) > MaxNesting-2 {
		return nil, fault.New(fault.InvalidRequest,
			"Lists and objects are nested more than %d deep. Send what is that deep as text.", MaxNesting-2)
	}
	return &Fields{raw: levels[0], with: with, part: levels[len(with)]}, nil
}

// Fail records that a member is wrong. The text continues a sentence that begins with its name.
func (f *Fields) Fail(name, format string, args ...any) {
	if f.Err == nil {
		f.Err = fault.New(fault.InvalidField, "The field %q ", f.Prefix+name).About(f.Prefix + name)
		e := fault.From(f.Err)
		e.Message += fmt.Sprintf(format, args...)
	}
}

// FailLong is Fail for a member that is too long; details.max_length has the limit.
func (f *Fields) FailLong(name string, most int, format string, args ...any) {
	if f.Err == nil {
		f.Fail(name, format, args...)
		f.Err = fault.From(f.Err).With("max_length", most)
	}
}

// Missing records that a required member is absent, and what a right value looks like.
func (f *Fields) Missing(name, right string) {
	if f.Err == nil {
		f.Err = fault.New(fault.MissingField, "The field %q is missing. It should be %s.", f.Prefix+name,
			right).About(f.Prefix + name)
	}
}

// Get is the value of a member, false if it is absent or null.
func (f *Fields) Get(name string) (wire.Raw, bool) {
	raw, there := f.raw[name]
	return raw, there && raw.Kind() != 'n'
}

// Has reports whether a member is present, also as null: in a PATCH null removes a value.
func (f *Fields) Has(name string) bool {
	_, there := f.raw[name]
	return there
}

// Only reports whether the members are exactly these.
func (f *Fields) Only(names ...string) bool {
	return len(f.raw) == len(names) && !slices.ContainsFunc(names, func(name string) bool { return !f.Has(name) })
}

// Text reads a string of at most so many characters, "" if it is absent.
func (f *Fields) Text(name string, most int) string {
	raw, ok := f.Get(name)
	if !ok {
		return ""
	}
	s, ok := wire.Text(raw)
	switch {
	case raw.Kind() != '"':
		f.Fail(name, "should be text.")
	case !ok:
		f.Fail(name, "contains the character \\u0000, which text may not. Leave it out.")
	// Characters, not bytes: a subject of 256 emoji is as long as one of 256 letters.
	case utf8.RuneCountInString(s) > most:
		f.FailLong(name, most, "should have at most %d characters, and has %d.", most, utf8.RuneCountInString(s))
	}
	return s
}

// Required reads a string that must be present and not empty; right describes a right value.
func (f *Fields) Required(name string, most int, right string) string {
	s := f.Text(name, most)
	if s == "" && f.Err == nil {
		if _, there := f.Get(name); there {
			f.Fail(name, "is empty. It should be %s.", right)
		} else {
			f.Missing(name, right)
		}
	}
	return s
}

// Object reads a member that is an object, nil if it is absent. Errors of the part are its own
// until Join.
func (f *Fields) Object(name string) *Fields {
	raw, ok := f.Get(name)
	if !ok {
		return nil
	}
	if raw.Kind() != '{' {
		f.Fail(name, "should be an object.")
		return nil
	}
	members := f.part
	if !slices.Contains(f.with, name) {
		var err error
		if members, err = wire.Members(raw); err != nil && f.Err == nil {
			f.Err = err
		}
	}
	return &Fields{raw: members, Prefix: f.Prefix + name + "."}
}

// Join takes over the error of a part, unless there is one already.
func (f *Fields) Join(part *Fields) {
	if part != nil && f.Err == nil {
		f.Err = part.Err
	}
}

// Flag reads true or false, nil if it is absent.
func (f *Fields) Flag(name string) *bool {
	raw, ok := f.Get(name)
	if !ok {
		return nil
	}
	if raw.Kind() != 't' && raw.Kind() != 'f' {
		f.Fail(name, "should be true or false.")
	}
	yes := raw.Kind() == 't'
	return &yes
}

// Texts reads a list of at most so many strings, each of 1 to longest bytes, nil if it is absent.
func (f *Fields) Texts(name string, most, longest int) []string {
	raw, ok := f.Get(name)
	if !ok {
		return nil
	}
	items := []string{}
	err := wire.Unmarshal(raw, &items)
	if raw.Kind() != '[' || err != nil || len(items) > most {
		f.Fail(name, "should be a list of at most %d texts.", most)
	}
	for _, item := range items {
		if item == "" || len(item) > longest {
			f.Fail(name, "should be a list of texts of 1 to %d bytes.", longest)
		}
	}
	return items
}

// momentForm is stricter than time.Parse, which takes a comma before the fraction too.
var momentForm = regexp.MustCompile(`^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$`)

// Time reads a time with or without a fraction (MSG-8), the zero time if it is absent.
func (f *Fields) Time(name string) time.Time {
	s := f.Text(name, 64)
	if s == "" {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339Nano, strings.ToUpper(s))
	if err != nil || !momentForm.MatchString(s) {
		f.Fail(name, "should be a time such as \"2026-03-06T22:10:38Z\", and is %.80q.", s)
	}
	return t
}

// Proof reads a proof of a private key and the time in seconds that it is signed with (MSG-19), nil if it is absent.
// Our client sends the time as a number, shell scripts as a text.
func (f *Fields) Proof() (proof []byte, at int64) {
	text := f.Text("proof", 256)
	if text == "" {
		return nil, 0
	}
	proof, err := base64.StdEncoding.DecodeString(text)
	if err != nil || len(proof) != ed25519.SignatureSize {
		f.Fail("proof", "should be an Ed25519 signature in base64.")
	}
	raw, ok := f.Get("proof_timestamp")
	at, err = strconv.ParseInt(strings.Trim(string(raw), `"`), 10, 64)
	if !ok || err != nil {
		f.Fail("proof_timestamp", "should be the time in seconds that the proof is signed with.")
	}
	return proof, at
}
