package engine

import (
	"regexp"
	"strings"

	"signalbox/internal/fault"
)

// FormatResume is the line by which people and programs go on with a session, in
// backticks, so that chats do not format it.
func (e *Engine) FormatResume(r Resume) (string, error) {
	if r.Engine != e.Name {
		return "", wrongEngine(r, e)
	}
	return "`" + e.line(r.Value) + "`", nil
}

// wrongEngine is the error about a session of another engine (RUN-26). Its wording is
// that of other tools that read these lines.
func wrongEngine(r Resume, e *Engine) error {
	return fault.New(fault.InvalidRequest, "resume token is for engine '%s', not '%s'", r.Engine, e.Name).About("resume")
}

// IsResumeLine reports whether the text begins with a resume line of the engine.
func (e *Engine) IsResumeLine(text string) bool {
	at := e.pattern.FindStringIndex(text)
	return len(at) > 0 && at[0] == 0
}

// ExtractResume finds the engine's last resume line in a text: answers quote older ones
// above (RUN-26).
func (e *Engine) ExtractResume(text string) (Resume, bool) {
	all := e.pattern.FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		return Resume{}, false
	}
	return Resume{Engine: e.Name, Value: strings.Trim(all[len(all)-1][1], `"'`)}, true
}

// reply is the mark that messages of ours have before a resume line.
var reply = regexp.MustCompile(`(?m)^[ \t]*↩\x{FE0F}?[ \t]*`)

// FindResume finds a resume line of any engine in a text, such as an answer that a
// person has copied.
func FindResume(text string) (Resume, bool) {
	text = reply.ReplaceAllString(text, "")
	for _, e := range all() {
		if r, ok := e.ExtractResume(text); ok {
			return r, true
		}
	}
	return Resume{}, false
}

// ReadResume understands what a person gives as the session to go on with: a text with
// a resume line in it, or the session's id alone. An id may not begin with a dash,
// since the CLI would take it for a flag.
func (e *Engine) ReadResume(text string) (Resume, error) {
	if r, ok := FindResume(text); ok {
		if r.Engine != e.Name {
			return Resume{}, wrongEngine(r, e)
		}
		return r, nil
	}
	id := strings.TrimSpace(text)
	// People copy amp's threads as addresses of its web site.
	if e.Name == "amp" { // the address of a thread is as good as its id
		id = id[strings.LastIndexByte(id, '/')+1:]
	}
	if id == "" || strings.ContainsAny(id, "\n`") || strings.HasPrefix(id, "-") ||
		strings.Contains(id, " ") && e.Name != "pi" {
		line, _ := e.FormatResume(Resume{Engine: e.Name, Value: "ID"})
		return Resume{}, fault.New(fault.InvalidRequest,
			"%.80q is neither the id of a session nor a text with a line such as %s.", text, line).About("resume")
	}
	return Resume{Engine: e.Name, Value: id}, nil
}
