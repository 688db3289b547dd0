package signal

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// fields are the members of a payload, and what was found to be wrong with them.
type fields struct {
	body  []byte
	typ   Type
	raw   map[string]wire.Raw
	wrong map[string]string
	form  form
}

// readFields reads a JSON object of the type, or of the type that it says itself. What
// is no object, or has a name twice, is an error of the whole.
func readFields(body []byte, t Type) (*fields, error) {
	f := &fields{body: body, typ: t, wrong: map[string]string{}}
	var err error
	if f.raw, err = wire.Members(body); err != nil {
		return nil, err
	}
	if t == "" {
		f.typ = f.typeOf()
	}
	if wire.Depth(body) > maxDepth {
		return nil, fault.New(fault.InvalidPayload, "Lists and objects are nested more than %d deep. Send what is that deep as text.", maxDepth)
	}
	f.form = forms[f.typ]
	f.version()
	f.oneOf("type", string(f.typ))
	return f, nil
}

// maxDepth is far above what is real. What is written around a payload in the ledger makes
// it deeper, and must not make it deeper than JSON is read.
const maxDepth = 256

// err is the error for all that is wrong, nil when nothing is.
func (f *fields) err() error {
	if len(f.wrong) == 0 {
		return nil
	}
	names := sortedNames(f.wrong)
	message := f.wrong[names[0]]
	if n := len(names) - 1; n > 0 {
		message += fmt.Sprintf(" (And %d more wrong, in details.fields: %s.)", n, strings.Join(names[1:], ", "))
	}
	e := fault.New(fault.InvalidPayload, "%s", message).About(names[0]).With("fields", f.wrong)
	if _, ok := f.wrong["amp_version"]; ok {
		e = e.With("supported", []string{f.form.version})
	}
	return e
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (f *fields) fail(name, format string, args ...any) {
	f.wrong[name] = fmt.Sprintf("The field %q ", name) + fmt.Sprintf(format, args...)
}

// get is the value of a field. null is the same as absent; absent is wrong if the
// field is required, and what the form does not have is not looked at.
func (f *fields) get(name string, right func() string) (wire.Raw, bool) {
	required, known := f.form.fields[name]
	raw, there := f.raw[name]
	if known && there && raw.Kind() != 'n' {
		return raw, true
	}
	if required {
		state := "is missing"
		if there {
			state = "is null"
		}
		f.fail(name, "%s. It should be %s.", state, right())
	}
	return nil, false
}

// text reads a string of 1 to most characters.
func (f *fields) text(name string, most int, example string) string {
	right := func() string { return fmt.Sprintf("text of 1 to %d characters, such as %q", most, example) }
	raw, ok := f.get(name, right)
	if !ok {
		return ""
	}
	if raw.Kind() != '"' {
		f.fail(name, "should be %s, and is %s.", right(), kindOf(raw))
		return ""
	}
	s, ok := wire.Text(raw)
	if !ok { // it is text, so there is but one thing wrong
		f.fail(name, "contains the character \\u0000, which text may not. Leave it out.")
		return ""
	}
	if n := utf8.RuneCountInString(s); strings.TrimSpace(s) == "" || n > most {
		f.fail(name, "should be %s, and has %d characters.", right(), n)
	}
	return s
}

// name reads a name in kebab-case.
func (f *fields) name(field, example string) string {
	right := func() string {
		return fmt.Sprintf("1 to 63 lower-case letters and digits with single hyphens between them, such as %q", example)
	}
	raw, ok := f.get(field, right)
	if !ok {
		return ""
	}
	s, ok := wire.Text(raw)
	if !ok || len(s) > 63 || !kebab.MatchString(s) {
		f.fail(field, "should be %s, and is %.80s.", right(), raw)
	}
	return s
}

// oneOf reads one of a few words.
func (f *fields) oneOf(name string, known ...string) string {
	right := func() string { return "one of " + strings.Join(known, ", ") }
	raw, ok := f.get(name, right)
	if !ok {
		return ""
	}
	s, ok := wire.Text(raw)
	if !ok || !slices.Contains(known, s) {
		f.fail(name, "should be %s, and is %.80s.", right(), raw)
		return ""
	}
	return s
}

// count reads a whole number, 0 or more.
func (f *fields) count(name string) int64 {
	return f.number(name, "a whole number, 0 or more, such as 1842", parseCount)
}

// dollars reads an amount as nano-dollars.
func (f *fields) dollars(name string) int64 {
	return f.number(name, "an amount in dollars, 0 or more, such as 0.007532", parseDollars)
}

func (f *fields) number(name, right string, parse func(wire.Raw) (int64, bool)) int64 {
	raw, ok := f.get(name, func() string { return right })
	if !ok {
		return 0
	}
	n, ok := parse(raw)
	if !ok {
		f.fail(name, "should be %s, and is %.80s.", right, raw)
	}
	return n
}

func parseCount(raw wire.Raw) (n int64, ok bool) {
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

func parseDollars(raw wire.Raw) (nano int64, ok bool) {
	n, err := strconv.ParseFloat(string(raw), 64)
	if raw.Kind() != '0' || err != nil || n < 0 || n > maxCost {
		return 0, false
	}
	return int64(math.Round(n * 1e9)), true
}

func (f *fields) flag(name string) bool {
	raw, ok := f.get(name, func() string { return "true or false" })
	if ok && raw.Kind() != 't' && raw.Kind() != 'f' {
		f.fail(name, "should be true or false, and is %.80s.", raw)
	}
	return ok && raw.Kind() == 't'
}

// moment is the form of RFC 3339; time.Parse takes T2:10:38 and 38,5 seconds too.
var moment = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$`)

// time reads a moment. One without a zone could be any of 26 hours.
func (f *fields) time(name string) time.Time {
	right := func() string { return "a time with its zone (RFC 3339), such as \"2026-03-06T22:10:38Z\"" }
	raw, ok := f.get(name, right)
	if !ok {
		return time.Time{}
	}
	if s, ok := wire.Text(raw); ok {
		if t, err := time.Parse(time.RFC3339Nano, s); err == nil && moment.MatchString(s) {
			return t
		}
	}
	f.fail(name, "should be %s, and is %.80s.", right(), raw)
	return time.Time{}
}

func (f *fields) list(name string, most int) []wire.Raw {
	right := func() string {
		return fmt.Sprintf("a list of at most %d items, such as [{\"type\": \"text\", \"content\": \"…\"}]", most)
	}
	raw, ok := f.get(name, right)
	if !ok {
		return nil
	}
	var items []wire.Raw
	if raw.Kind() != '[' || wire.Unmarshal(raw, &items) != nil {
		f.fail(name, "should be %s, and is %s.", right(), kindOf(raw))
		return nil
	}
	if len(items) > most {
		f.fail(name, "should be %s, and has %d.", right(), len(items))
	}
	return items
}

// texts reads a list of short texts.
func (f *fields) texts(name string, most, longest int) []string {
	right := func() string {
		return fmt.Sprintf("a list of at most %d texts of 1 to %d characters, such as [\"send_mail\"]", most, longest)
	}
	raw, ok := f.get(name, right)
	if !ok {
		return nil
	}
	var items []string
	if wire.Unmarshal(raw, &items) != nil || len(items) > most || slices.ContainsFunc(items, func(s string) bool { return s == "" || utf8.RuneCountInString(s) > longest }) {
		f.fail(name, "should be %s.", right())
	}
	return items
}

func (f *fields) object(name string) wire.Raw {
	right := func() string { return "an object, such as {\"source\": \"cron\"}" }
	raw, ok := f.get(name, right)
	if ok && raw.Kind() != '{' {
		f.fail(name, "should be %s, and is %s.", right(), kindOf(raw))
	}
	return raw
}

// url reads an address. Whether it may be called is checked by who calls it.
func (f *fields) url(name string) string {
	right := func() string { return "an http or https address, such as \"https://example.com/hooks/amp\"" }
	raw, ok := f.get(name, right)
	if !ok {
		return ""
	}
	if s, ok := wire.Text(raw); ok && len(s) <= maxURL {
		if u, err := url.Parse(s); err == nil && u.Host != "" && (u.Scheme == "http" || u.Scheme == "https") {
			return s
		}
	}
	f.fail(name, "should be %s, and is %.80s.", right(), raw)
	return ""
}

var kinds = map[byte]string{'n': "null", 't': "true", 'f': "false", '"': "text", '0': "a number", '{': "an object", '[': "a list"}

func kindOf(raw wire.Raw) string { return kinds[byte(raw.Kind())] }
