package facts

import (
	"slices"
	"strings"
)

// Does is the class of a call: what it does, whatever the tool is called.
type Does string

// The classes.
const (
	Shell  Does = "shell"  // runs commands
	Read   Does = "read"   // reads files
	Write  Does = "write"  // writes whole files
	Edit   Does = "edit"   // changes parts of files
	Delete Does = "delete" // deletes files
	Search Does = "search" // looks for files, or in them
	Fetch  Does = "fetch"  // reaches the network
	MCP    Does = "mcp"    // a tool of an MCP server that is not known here
	Agent  Does = "agent"  // hands work to another agent
	Ask    Does = "ask"    // asks the person, or plans
	Other  Does = "other"
)

// Classes lists the classes in the order in which they are documented.
var Classes = []Does{Shell, Read, Write, Edit, Delete, Search, Fetch, MCP, Agent, Ask, Other}

// Limits. What goes beyond is Opaque, and a command text beyond maxText is Unreadable.
const (
	maxText     = 1 << 20   // bytes of a command
	maxParsed   = 128 << 10 // bytes of a command that are parsed: nested brackets take stack
	maxExpanded = 4 << 20   // bytes that variables are expanded to, in all
	maxVariable = 64 << 10  // bytes of a variable
	maxCommands = 200
	maxArgs     = 500 // of one command
	maxPaths    = 400 // of one kind
	maxDepth    = 8   // shell texts inside of one another
	maxSteps    = 5000
)

// Call is a tool call as an agent makes it. Arguments are decoded JSON.
type Call struct {
	Tool      string
	Toolset   string // the MCP server or other set that the tool belongs to, if the protocol says so
	Arguments map[string]any
	CWD       string // empty if it is not known
}

// Facts is what a call does. Of makes it, rules read it; it is never stored, since it follows
// from the call.
type Facts struct {
	Does     Does      `json:"does"`
	Command  string    `json:"command,omitzero"`  // the shell text
	Commands []Command `json:"commands,omitzero"` // each simple command in it
	Opaque   []Reason  `json:"opaque,omitzero"`   // why it cannot be known what runs; empty if it can
	Paths    []string  `json:"paths,omitzero"`    // all paths, those of the following lists too
	Reads    []string  `json:"reads,omitzero"`
	Writes   []string  `json:"writes,omitzero"`
	Deletes  []string  `json:"deletes,omitzero"`
	Hosts    []string  `json:"hosts,omitzero"`
	// Unreadable is why the call cannot be judged at all: an argument is present, and is not what
	// the tool takes.
	Unreadable string `json:"unreadable,omitzero"`

	Path string `json:"-"` // the path among the arguments as it is written
	URL  string `json:"-"` // the address among the arguments as it is written
	Base Base   `json:"-"` // where the agent works, for comparing paths with places

	pending *arguments // what Complete still has to look at
}

// Command is one simple command of a shell text, after quotes and what can be expanded
// without running it.
type Command struct {
	Name    string            `json:"name"` // without its folder: rm for /bin/rm
	Args    []string          `json:"args,omitzero"`
	Flags   []string          `json:"flags,omitzero"`   // -rf is there as -rf, -r and -f; --depth=1 as --depth
	Targets []string          `json:"targets,omitzero"` // the arguments that are no flags
	Assigns map[string]string `json:"assigns,omitzero"` // variables that are set for this command alone
}

// Skim reads the arguments of a call: Does, Command, Path, URL and Unreadable are set. It takes
// little time; Complete finds the rest.
func Skim(c Call) *Facts {
	f := &Facts{Base: BaseOf(c.CWD)}
	a := readArguments(c, f)
	f.Does = a.does
	f.Command = strings.Join(a.scripts, "\n")
	if f.Unreadable == "" {
		f.pending = a
	}
	return f
}

// Of finds all facts of a call.
func Of(c Call) *Facts {
	f := Skim(c)
	f.Complete()
	return f
}

// Complete finds what Skim has left out. It is not safe for concurrent use.
func (f *Facts) Complete() {
	a := f.pending
	if a == nil {
		return
	}
	f.pending = nil
	// A call may name the folder that it runs in. That is what its paths are relative to, and not
	// where the agent may work: the base of the facts stays.
	base := f.Base
	if a.cwd != "" {
		base = Base{base.Abs(a.cwd), base.Home}
		f.add(mentions, base.CWD)
	}
	for _, p := range a.paths {
		f.add(p.use, base.Abs(p.path))
	}
	for _, patch := range a.patches {
		f.addPatch(patch, base)
	}
	for _, u := range a.urls {
		f.addHost(hostOf(u, true))
	}
	for _, text := range a.texts {
		for _, u := range urlsIn(text) {
			f.addHost(hostOf(u, false))
		}
	}
	if a.opaque != "" {
		f.blur(a.opaque)
	}
	if f.Command != "" {
		newShell(f, base).run(f.Command)
	}
}

// use is what a call does with a path.
type use int

const (
	mentions use = iota
	reads
	writes
	deletes
)

// add notes a path and what is done with it.
func (f *Facts) add(u use, path string) {
	if path == "" || isStream(path) {
		return
	}
	f.note(&f.Paths, path)
	switch u {
	case reads:
		f.note(&f.Reads, path)
	case writes:
		f.note(&f.Writes, path)
	case deletes:
		f.note(&f.Deletes, path)
	case mentions:
	}
}

// note adds a text to a list, once. A list that is full makes the call opaque.
func (f *Facts) note(list *[]string, text string) {
	if slices.Contains(*list, text) {
		return
	}
	if len(*list) == maxPaths {
		f.blur(Excess)
		return
	}
	if *list == nil {
		*list = make([]string, 0, 4)
	}
	*list = append(*list, text)
}

// addHost notes a host, in lower case.
func (f *Facts) addHost(host string) {
	if host != "" {
		f.note(&f.Hosts, strings.ToLower(strings.TrimSuffix(host, ".")))
	}
}

// blur notes why it cannot be known what runs.
func (f *Facts) blur(why Reason) {
	if !slices.Contains(f.Opaque, why) {
		f.Opaque = append(f.Opaque, why)
	}
}

// Reason is why it cannot be known what a call runs.
type Reason string

// The reasons.
const (
	Download   Reason = "download"  // it runs what it downloads
	Encoded    Reason = "encoded"   // it runs a text that is encoded
	Eval       Reason = "eval"      // it uses eval
	Variable   Reason = "variable"  // the command is a variable or a substitution
	Printed    Reason = "printed"   // a shell runs what another program prints
	Typed      Reason = "typed"     // a shell or interpreter waits for what is typed into it later
	Unparsed   Reason = "unparsed"  // the text is not a shell's
	Language   Reason = "language"  // code in another language that may start programs or delete files
	Written    Reason = "written"   // it runs a file that it writes itself
	Recursion  Reason = "recursion" // a function calls itself
	Excess     Reason = "excess"    // it is too long or too deep to be followed
	UnknownArg Reason = "argument"  // none of the arguments is known to be the command
)

// Reasons says each reason in words, for the people who are asked.
var Reasons = map[Reason]string{
	Download:   "it runs what it downloads",
	Encoded:    "it runs a text that is encoded",
	Eval:       "it uses eval",
	Variable:   "a variable or a substitution is used as a command",
	Printed:    "a shell runs what another program prints",
	Typed:      "a shell or interpreter waits for what is typed into it later",
	Unparsed:   "the shell text cannot be parsed",
	Language:   "it runs code in another language that may start programs or delete files",
	Written:    "it runs a file that it writes itself",
	Recursion:  "a function calls itself",
	Excess:     "it is too long or too deeply nested to be followed",
	UnknownArg: "none of the arguments is known to be its command",
}

// OpaqueReasons are the reasons as texts.
func (f *Facts) OpaqueReasons() []string {
	all := make([]string, len(f.Opaque))
	for i, reason := range f.Opaque {
		all[i] = string(reason)
	}
	return all
}
