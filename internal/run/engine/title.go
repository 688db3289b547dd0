package engine

import "strings"

// call is a tool call as an engine writes it.
type call struct {
	name  string
	input value
	dir   string
	paths []string // the names under which the input may have a path
}

// The names under which inputs have paths: those that every engine knows, and all of
// them.
var (
	plainPaths = []string{"file_path", "path"}
	allPaths   = []string{"file_path", "path", "filePath", "absolute_path", "dir_path"}
)

// path is the path in the input, exactly as it was given, or "".
func (c call) path() string {
	for _, name := range c.paths {
		if path := c.input.get(name).str(); path != "" {
			return path
		}
	}
	return ""
}

// first is the first of these members that is not empty, as text.
func (c call) first(names ...string) string {
	for _, name := range names {
		if v := c.input.get(name); v.truthy() {
			return v.shown()
		}
	}
	return ""
}

// aliases maps names of tools to the name of the tool that does the same. Names are
// compared in lower case.
var aliases = map[string]string{
	"shell": "bash", "killshell": "bash", "shell_command": "bash", "run_shell_command": "bash",
	"edit": "edit", "write": "edit", "multiedit": "edit", "notebookedit": "edit", "edit_file": "edit",
	"create_file": "edit",
	"apply_patch": "edit", "replace": "edit", "write_file": "edit", "patch": "edit",
	"read_file": "read", "read_many_files": "read",
	"list": "ls", "list_dir": "ls", "list_directory": "ls",
	"find_files": "glob", "search_files": "grep", "grep_search": "grep", "search_file_content": "grep",
	"websearch": "web_search", "google_web_search": "web_search",
	"webfetch": "web_fetch", "read_web_page": "web_fetch",
	"write_todos": "todowrite",
	"agent":       "task", "finder": "task", "oracle": "task", "librarian": "task", "invoke_agent": "task",
}

// describe is the kind of a call and its title; the table is in docs/protocols/runs.md.
func (c call) describe() (Kind, string) {
	name := strings.ToLower(c.name)
	if same, ok := aliases[name]; ok {
		name = same
	}
	switch name {
	case "bash":
		if command := c.first("command", "cmd"); command != "" {
			return Command, relativeCommand(command, c.dir)
		}
		return Command, c.name
	case "edit":
		if path := c.path(); path != "" {
			return FileChange, relative(path, c.dir)
		}
		return FileChange, c.name
	case "read", "ls":
		return Tool, titled(name, relative(c.path(), c.dir))
	case "glob":
		return Tool, titled(name, c.first("pattern", "filePattern"))
	case "grep", "find":
		return Tool, titled(name, c.first("pattern"))
	// Queries and addresses are shown as they are; a fetch counts as a search, since both
	// leave the machine.
	case "web_search":
		return WebSearch, or(c.first("query", "objective"), "search")
	case "web_fetch":
		return WebSearch, or(c.first("url"), "fetch")
	case "todowrite":
		return Note, "update todos"
	case "todoread":
		return Note, "read todos"
	case "askuserquestion":
		return Note, "ask user"
	case "task":
		if about := c.first("description", "task", "query", "prompt"); about != "" {
			return Subagent, "task: " + about
		}
		return Subagent, c.name
	}
	return Tool, c.name
}

// titled is "name: about", or the name alone.
func titled(name, about string) string {
	if about == "" {
		return name
	}
	return name + ": " + about
}

// or is the text, or the other one if it is empty.
func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// relative is a path as seen from dir. It works on text alone (RUN-16): the path may be
// on another machine.
func relative(path, dir string) string {
	if dir == "" || path == "" {
		return path
	}
	if path == dir {
		return "."
	}
	if rest, ok := strings.CutPrefix(path, dir+"/"); ok {
		return or(rest, ".")
	}
	return path
}

// relativeCommand takes every mention of the folder out of a command, for people who
// read it.
func relativeCommand(command, dir string) string {
	if dir == "" {
		return command
	}
	return strings.ReplaceAll(command, dir+"/", "")
}

// Describe is the kind and the title of a tool call whose input is written as amp
// writes it. It is for conformance cases.
func Describe(name string, input []byte, dir string) (Kind, string) {
	v, _ := parse(input)
	return call{name: name, input: v.object(), dir: dir, paths: plainPaths}.describe()
}
