package facts

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/syntax"
)

// arguments are what the arguments of a call say, before anything is taken apart.
type arguments struct {
	does    Does
	scripts []string // shell texts
	paths   []usedPath
	patches []string
	urls    []string
	texts   []string // prose that may hold addresses, for tools that fetch what it names
	cwd     string
	opaque  Reason
}

type usedPath struct {
	path string
	use  use
}

// argumentReader reads the arguments of one call.
type argumentReader struct {
	arguments
	f     *Facts
	args  map[string]any
	has   meaning // what the names in args mean, so that what none of them means is not looked for
	name  string  // of the tool, in lower case and without its server
	known bool    // the tables have the tool
	found bool    // it has a command
}

// readArguments finds what a call's arguments say by the names that tools have for them.
// Command, Path, URL and Unreadable of the facts are set as well.
func readArguments(c Call, f *Facts) *arguments {
	r := &argumentReader{f: f, args: c.Arguments}
	r.does, r.name, r.known = classOf(c.Tool, c.Toolset)
	if r.editor() {
		return &r.arguments
	}
	// The shell tools of OpenAI have what acts inside of an action or operation. What is beside it
	// is read too: a decoy must hide nothing.
	levels := []map[string]any{c.Arguments}
	for _, inner := range []string{"action", "operation"} {
		if m, ok := c.Arguments[inner].(map[string]any); ok {
			levels = append(levels, m)
		}
	}
	for _, level := range levels {
		r.enter(level)
		r.commands()
		if f.Unreadable != "" {
			return &r.arguments
		}
	}
	if r.does == Shell && !r.found && slices.ContainsFunc(levels, hasText) {
		r.opaque = UnknownArg
	}
	for _, level := range levels {
		r.enter(level)
		r.files()
		r.patch()
		r.addresses()
	}
	return &r.arguments
}

// enter goes on with these arguments.
func (r *argumentReader) enter(args map[string]any) {
	r.args, r.has = args, 0
	for name := range args {
		r.has |= meanings[name]
	}
}

// looking are the names of a list, none if none of the arguments has one of them.
func (r *argumentReader) looking(list meaning, names []string) []string {
	if r.has&list == 0 {
		return nil
	}
	return names
}

// addresses reads the arguments that hold addresses.
func (r *argumentReader) addresses() {
	for _, name := range r.looking(isURL, urlNames) {
		for _, u := range textsOf(r.args[name]) {
			if strings.HasPrefix(u, "file://") {
				r.path(strings.TrimPrefix(u, "file://"), reads)
				continue
			}
			if name != "uri" || strings.Contains(u, "://") {
				r.urls = append(r.urls, u)
			}
		}
	}
	if len(r.urls) > 0 {
		r.f.URL = r.urls[0]
	}
	if r.does == Fetch {
		r.texts = append(r.texts, append(textsOf(r.args["prompt"]), textsOf(r.args["query"])...)...)
	}
}

// commands reads the shell text. A tool that is not known and has an argument named command is
// taken for a shell: it is one, or it does no harm to read it so.
func (r *argumentReader) commands() {
	if r.does != Shell && r.known {
		return
	}
	names := commandNames
	if r.does == Shell {
		names = shellNames
	}
	for _, name := range r.looking(isCommand, names) {
		value, present := r.args[name]
		if !present || value == nil {
			continue
		}
		if r.does != Shell && (name == "script" || !looksLikeCommand(value)) {
			continue
		}
		r.does, r.found = Shell, true
		r.command(name, value)
		if r.f.Unreadable != "" {
			return
		}
	}
	if r.does != Shell {
		return
	}
	for _, name := range r.looking(isFolder, cwdNames) {
		if dir, ok := r.args[name].(string); ok && dir != "" && r.cwd == "" {
			r.cwd = dir
		}
	}
	if language, _ := r.args["language"].(string); language != "" && !isShell(language) {
		r.opaque = Language
	}
	if r.name == "exec" && r.args["input"] != nil { // of Codex, where the model writes a script that calls the tools
		r.opaque = Language
	}
}

// looksLikeCommand reports whether the argument of a tool that is not known can be a command.
func looksLikeCommand(value any) bool {
	switch value.(type) {
	case string, []any:
		return true
	}
	return false
}

// command reads one argument that holds a command: a text, the words of one command, or a list
// of texts.
func (r *argumentReader) command(name string, value any) {
	switch v := value.(type) {
	case string:
		r.script(v)
	case []any:
		words := make([]string, 0, len(v))
		for _, item := range v {
			word, ok := item.(string)
			if !ok {
				r.f.Unreadable = fmt.Sprintf(
					"The argument %s should be a text or a list of texts, and holds %s.",
					name,
					kindOf(item),
				)
				return
			}
			words = append(words, word)
		}
		r.list(name, words)
	default:
		r.f.Unreadable = fmt.Sprintf("The argument %s should be a text or a list of texts, and is %s.", name, kindOf(value))
	}
}

// list reads a list of texts. It is the words of one command, unless the first of them cannot be
// the name of a program; under the name commands it may be either, so it is read as both.
func (r *argumentReader) list(name string, words []string) {
	if len(words) == 0 {
		return
	}
	texts := strings.ContainsAny(strings.TrimSpace(words[0]), " \t\n;|&<>")
	if texts || name == "commands" {
		for _, text := range words {
			r.script(text)
		}
	}
	if texts || (name == "commands" && len(words) == 1) {
		return
	}
	quoted := make([]string, len(words))
	for i, word := range words {
		q, err := syntax.Quote(word, syntax.LangBash)
		if err != nil {
			r.f.Unreadable = fmt.Sprintf("The argument %s holds a word that no command can have: %s.", name, err)
			return
		}
		quoted[i] = q
	}
	r.script(strings.Join(quoted, " "))
}

// script notes a shell text, if it can be read.
func (r *argumentReader) script(text string) {
	switch {
	case len(text) > maxText:
		r.f.Unreadable = fmt.Sprintf("The command has %d bytes, and may have %d.", len(text), maxText)
	case !utf8.ValidString(text):
		r.f.Unreadable = "The command is not valid UTF-8."
	case strings.ContainsRune(text, 0):
		r.f.Unreadable = "The command contains a NUL character, at which programs stop reading."
	case strings.TrimSpace(text) != "":
		r.scripts = append(r.scripts, text)
	}
}

// editor reads the tools whose argument command says what to do with a file: Anthropic's editor
// and memory.
func (r *argumentReader) editor() bool {
	switch r.name {
	case "str_replace_based_edit_tool", "str_replace_editor", "text_editor_code_execution", "memory":
	default:
		return false
	}
	verb, _ := r.args["command"].(string)
	what := map[string]struct {
		does Does
		use  use
	}{
		"view": {Read, reads}, "create": {Write, writes}, "delete": {Delete, deletes}, "rename": {Edit, deletes},
	}[verb]
	if what.does == "" {
		what.does, what.use = Edit, writes
	}
	r.does = what.does
	for _, name := range append([]string{"path"}, fromNames...) {
		r.named(name, what.use)
	}
	for _, name := range toNames {
		r.named(name, writes)
	}
	return true
}

// uses is what the classes do with the files that they name. What others do, their names say.
var uses = map[Does]use{
	Read: reads, Search: reads, Write: writes, Edit: writes, Delete: deletes, Shell: mentions, Fetch: mentions,
	Agent: mentions, Ask: mentions,
}

// files reads the arguments that name files.
func (r *argumentReader) files() {
	u, known := uses[r.does]
	if !known {
		u = useOf(r.name)
	}
	switch kind, _ := r.args["type"].(string); kind { // of OpenAI's apply_patch
	case "delete_file":
		u = deletes
	case "create_file", "update_file":
		u = writes
	}
	for _, name := range r.looking(isPath, pathNames) {
		if r.does == Shell && (name == "file" || name == "files" || slices.Contains(cwdNames, name)) {
			continue // where it runs is not what it touches
		}
		r.named(name, u)
	}
	moves := reads
	if u == writes && strings.Contains(r.name, "move") || strings.Contains(r.name, "rename") {
		moves = deletes
	}
	for _, name := range r.looking(isTo, toNames) {
		if _, both := r.args[name]; both {
			r.named(name, writes)
			for _, from := range fromNames {
				r.named(from, moves)
			}
		}
	}
}

// named notes the paths in one argument.
func (r *argumentReader) named(name string, u use) {
	for _, p := range textsOf(r.args[name]) {
		if name == "uri" {
			rest, isFile := strings.CutPrefix(p, "file://")
			if !isFile {
				continue
			}
			p = rest
		}
		r.path(p, u)
	}
}

// path notes a path; the first is the one that rules see as event.path.
func (r *argumentReader) path(p string, u use) {
	if p == "" || strings.ContainsRune(p, 0) {
		return
	}
	if r.f.Path == "" {
		r.f.Path = p
	}
	r.paths = append(r.paths, usedPath{p, u})
}

// patch reads the arguments that hold a patch.
func (r *argumentReader) patch() {
	if r.does != Edit && r.known {
		return
	}
	for _, name := range r.looking(isPatch, patchNames) {
		for _, text := range textsOf(r.args[name]) {
			if looksLikePatch(text) {
				r.patches = append(r.patches, text)
			}
		}
	}
}

// textsOf are the texts in a value: itself, or those of a list or an object.
func textsOf(value any) (all []string) {
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, item := range v {
			switch one := item.(type) {
			case string:
				all = append(all, one)
			case map[string]any: // read_files of several servers: [{"path": …}]
				for _, name := range []string{"path", "file_path", "file"} {
					all = append(all, textsOf(one[name])...)
				}
			}
		}
	case map[string]any:
		for _, item := range v {
			if text, ok := item.(string); ok {
				all = append(all, text)
			}
		}
	}
	return all
}

// hasText reports whether one of the arguments is a text.
func hasText(args map[string]any) bool { return len(textsOf(args)) > 0 }

// kindOf names a JSON value's type for people.
func kindOf(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case bool:
		return "true or false"
	case string:
		return "a text"
	case []any:
		return "a list"
	case map[string]any:
		return "an object"
	}
	return "a number"
}
