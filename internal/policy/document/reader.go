package document

import (
	"bytes"
	"errors"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"signalbox/internal/fault"
)

// maxSource is the largest file that is read, in bytes.
const maxSource = 1 << 20

// Reader turns YAML nodes into values. Problems are collected, and the zero value is
// returned, so that reading goes on to the next problem. The zero Reader is ready for use.
type Reader struct {
	problems []Problem
	lines    []string // the source, for positions inside of scalars
}

// At is where a node begins.
func At(n *yaml.Node) Position { return Position{n.Line, n.Column} }

// Read parses the source and returns its one document, nil if it cannot be read. what names the
// document in messages, such as "policy".
func (r *Reader) Read(source []byte, what string) *yaml.Node {
	start := Position{1, 1}
	if len(source) > maxSource {
		r.Add(start, "Make it shorter.", "The %s has %d bytes, and may have %d.", what, len(source), maxSource)
		return nil
	}
	if !utf8.Valid(source) {
		r.Add(start, "Save the file as UTF-8.", "The %s is not UTF-8 text.", what)
		return nil
	}
	r.lines = strings.Split(string(source), "\n")
	decoder := yaml.NewDecoder(bytes.NewReader(source))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		r.syntax(err, what)
		return nil
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		r.Add(At(&second), "Put everything into the first document.", "The %s has a second YAML document.", what)
	case !errors.Is(err, io.EOF):
		r.syntax(err, what)
	}
	return doc.Content[0]
}

var (
	yamlLine    = regexp.MustCompile(`^yaml: (?:line ([0-9]+): )?(.*)$`)
	parserWords = regexp.MustCompile(`^did not find expected (node content|key|'-'|','|<)`)
)

// syntax reports what the YAML parser says. The parser knows the line at most; the column is
// where the text of that line begins.
func (r *Reader) syntax(err error, what string) {
	if errors.Is(err, io.EOF) {
		r.Add(Position{1, 1}, `It begins with "version: 1".`, "The %s is empty.", what)
		return
	}
	where, words := Position{1, 1}, err.Error()
	hint := "Look at the indentation and the quotes of this line and the one before it."
	if m := yamlLine.FindStringSubmatch(words); m != nil {
		if line, err := strconv.Atoi(m[1]); err == nil {
			where.Line = line
		}
		words = m[2]
		if parserWords.MatchString(words) {
			where.Line++ // the parser counts its lines from 0, and the scanner from 1
			hint = "It is in the block that begins here: look at its indentation, brackets and quotes."
		}
		where.Line = max(1, min(where.Line, len(r.lines)))
	}
	text := r.lines[where.Line-1]
	where.Column = 1 + utf8.RuneCountInString(text) - utf8.RuneCountInString(strings.TrimLeft(text, " "))
	r.Add(where, hint, "This is not YAML: %s.", words)
}

// Fields are the members of a mapping, by name. A member that is not there is nil.
type Fields map[string]*yaml.Node

// Mapping reads a mapping that has no other fields than the known ones. A misspelt field is
// reported with the nearest known one: ignored, it would change what a rule does.
func (r *Reader) Mapping(n *yaml.Node, what string, known ...string) (Fields, bool) {
	found, ok := r.AnyMapping(n, what, func(key *yaml.Node) bool {
		for _, k := range known {
			if k == key.Value {
				return true
			}
		}
		r.Add(At(key), fault.DidYouMean(key.Value, known), "%s has no field %q.", what, key.Value)
		return false
	})
	return found, ok
}

// AnyMapping reads a mapping with keys that take accepts. take reports a problem for each key
// that it refuses.
func (r *Reader) AnyMapping(n *yaml.Node, what string, take func(key *yaml.Node) bool) (Fields, bool) {
	if !r.plain(n) {
		return nil, false
	}
	if n.Kind != yaml.MappingNode {
		r.Add(At(n), "Write fields, one a line, as in \"name: value\".", "%s should be a mapping, and is %s.", what,
			KindOf(n))
		return nil, false
	}
	found := Fields{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if !r.plain(key) || !take(key) {
			continue
		}
		if before, twice := found[key.Value]; twice {
			r.Add(At(key), "Keep one of them.", "%s has the field %q twice; the first is on line %d.", what, key.Value,
				before.Line)
			continue
		}
		found[key.Value] = value
	}
	return found, true
}

// plain refuses YAML whose meaning is elsewhere: aliases, anchors and tags.
func (r *Reader) plain(n *yaml.Node) bool {
	switch {
	case n.Kind == yaml.AliasNode, n.Anchor != "":
		r.Add(At(n), "Write the value out.", "Anchors and aliases are not allowed here.")
	case n.Style&yaml.TaggedStyle != 0:
		r.Add(At(n), "Leave the tag out.", "Tags such as %s are not allowed here.", n.Tag)
	default:
		return true
	}
	return false
}

// KindOf names the kind of a node in plain words, for messages.
func KindOf(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.Tag {
		case "!!null":
			return "empty"
		case "!!bool":
			return "true or false"
		case "!!int", "!!float":
			return "a number"
		}
		return "text"
	}
	return "something else"
}

// Scalar reads a scalar with one of the tags, and reports whether it could. form is the hint
// that says what a right value looks like.
func (r *Reader) Scalar(n *yaml.Node, name, form string, tags ...string) (string, bool) {
	if !r.plain(n) {
		return "", false
	}
	if n.Kind == yaml.ScalarNode {
		for _, tag := range tags {
			if n.Tag == tag {
				return n.Value, true
			}
		}
	}
	r.Add(At(n), form, "%q is %s.", name, KindOf(n))
	return "", false
}

// Text reads a string that is not blank and has no NUL, which could not be stored.
func (r *Reader) Text(n *yaml.Node, name, form string) string {
	text, ok := r.Scalar(n, name, form, "!!str")
	if ok && strings.TrimSpace(text) == "" {
		r.Add(At(n), form, "%q is empty.", name)
		return ""
	}
	if strings.ContainsRune(text, 0) {
		r.Add(At(n), "Leave it out.", "%q contains a NUL character.", name)
		return ""
	}
	return text
}

// OneOf reads one of a few words, and "" for any other.
func (r *Reader) OneOf(n *yaml.Node, name string, words ...string) string {
	text := r.Text(n, name, "It is one of: "+strings.Join(words, ", ")+".")
	for _, w := range words {
		if w == text {
			return text
		}
	}
	if text != "" {
		r.Add(At(n), fault.DidYouMean(text, words), "%q cannot be %q.", name, text)
	}
	return ""
}

// Bool reads true or false.
func (r *Reader) Bool(n *yaml.Node, name string) bool {
	text, ok := r.Scalar(n, name, "Write true or false.", "!!bool")
	return ok && strings.EqualFold(text, "true")
}

// Number reads a whole number from 1 to limit, and 0 for what is not one.
func (r *Reader) Number(n *yaml.Node, name string, limit int) int {
	form := "It is a whole number from 1 to " + strconv.Itoa(limit) + "."
	text, ok := r.Scalar(n, name, form, "!!int")
	if !ok {
		return 0
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 || v > limit {
		r.Add(At(n), form, "%q is %s.", name, text)
		return 0
	}
	return v
}

// maxWait is the longest duration in a policy.
const maxWait = 366 * 24 * time.Hour

// Duration reads a length of time from a second to a year.
func (r *Reader) Duration(n *yaml.Node, name string) time.Duration {
	const form = "Write a length of time such as 90s, 30m, 24h or 7d."
	text, ok := r.Scalar(n, name, form, "!!str")
	if !ok {
		return 0
	}
	d, ok := ParseDuration(text)
	if !ok || d < time.Second || d > maxWait {
		r.Add(At(n), form+" At least 1s and at most 366d.", "%q cannot be %q.", name, text)
		return 0
	}
	return d
}

// List reads a list that is not empty. Its items may be anything; the caller reads them.
func (r *Reader) List(n *yaml.Node, name, form string) []*yaml.Node {
	if !r.plain(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.Add(At(n), form, "%q should be a list, and is %s.", name, KindOf(n))
		return nil
	}
	if len(n.Content) == 0 {
		r.Add(At(n), form, "%q is an empty list.", name)
	}
	return n.Content
}

// Version checks that the version of the language is 1, the only one so far.
func (r *Reader) Version(doc *yaml.Node, f Fields) {
	n, ok := f["version"]
	if !ok {
		r.Add(At(doc), `Begin with "version: 1".`, "The version is missing.")
		return
	}
	if v, ok := r.Scalar(n, "version", "Write version: 1.", "!!int"); ok && v != "1" {
		r.Add(At(n), "Write version: 1.", "Version %s is not known.", v)
	}
}
