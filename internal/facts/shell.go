package facts

import (
	"maps"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// parsers are kept, since making one takes longer than a short text.
var parsers = sync.Pool{New: func() any { return syntax.NewParser(syntax.Variant(syntax.LangBash)) }}

// parse reads a shell text. A text that bash would not take is an error.
func parse(text string) (*syntax.File, error) {
	p := parsers.Get().(*syntax.Parser)
	defer parsers.Put(p)
	return p.Parse(strings.NewReader(text), "")
}

// shell walks through a shell text in the order in which it would run, and notes in the facts
// what it finds. It runs nothing: variables that the text itself sets are known, everything
// else that a shell would put in is not.
type shell struct {
	f     *Facts
	depth int // of texts inside of one another
	spent spent
	scope
	funcs map[string]*function
	files map[string]file // that the text writes, by path
}

// spent is how much of the limits a text has used, subshells and texts inside of it included.
type spent struct{ steps, expanded int }

// scope is what a subshell has of its own.
type scope struct {
	base   Base
	vars   map[string]value
	params []string // $1 and on; nil if they are not known
}

// value is a variable that the text sets.
type value struct {
	text  string
	known bool
}

// function is a function that the text declares.
type function struct {
	body   *syntax.Stmt
	called bool
	inside bool // it is being walked through
}

// file is what the text has written into a file.
type file struct {
	content  string
	known    bool
	download bool
}

// newShell makes a shell that begins in a folder.
func newShell(f *Facts, base Base) *shell {
	return &shell{f: f, scope: scope{base: base}}
}

// run parses a text and walks through it.
func (s *shell) run(text string) {
	if s.depth >= maxDepth {
		s.f.blur(Excess)
		return
	}
	if len(text) > maxParsed {
		s.f.blur(Excess)
		return
	}
	words := bareWords(text)
	var parsed *syntax.File
	if words == nil {
		var err error
		if parsed, err = parse(text); err != nil {
			s.f.blur(Unparsed)
			return
		}
	}
	s.depth++
	if words == nil {
		s.stmts(parsed.Stmts, input{})
	} else if s.step() {
		s.program(argv{words: words})
	}
	s.depth--
	if s.depth > 0 {
		return
	}
	for _, fn := range s.funcs { // they can be called from elsewhere, with anything
		if !fn.called {
			s.sub(func() { s.params = nil; s.call(fn) })
		}
	}
}

// sub does something in a subshell: what it sets and where it goes does not last.
func (s *shell) sub(do func()) {
	before := s.scope
	s.vars = maps.Clone(before.vars)
	do()
	s.scope = before
}

// setVariable notes what a variable is.
func (s *shell) setVariable(name string, v value) {
	if s.vars == nil {
		s.vars = map[string]value{}
	}
	s.vars[name] = v
}

// setFile notes what is in a file.
func (s *shell) setFile(path string, f file) {
	if s.files == nil {
		s.files = map[string]file{}
	}
	s.files[path] = f
}

// input is what a command reads from its standard input. What another command prints is found when
// it is asked for (see resolve): few commands run what they read.
type input struct {
	kind     inputKind
	printer  *syntax.Stmt // of inputPipe: who prints it
	before   *input       // and what that one reads
	text     string       // of inputText
	download bool         // it comes from the network
	decoded  bool         // it was encoded, so that its text is not what is read
}

type inputKind int

const (
	inputNone inputKind = iota // the terminal, or nothing
	inputText
	inputUnknown
	inputPipe
)

// resolve finds what is read from a pipe.
func (s *shell) resolve(in input) input {
	if in.kind == inputPipe {
		return s.output(in.printer, *in.before)
	}
	return in
}

func (s *shell) stmts(all []*syntax.Stmt, in input) {
	for _, one := range all {
		s.stmt(one, in)
	}
}

// step counts a step. It is false where a text is too long to follow, such as loops over many words inside of one
// another: walking stops there.
func (s *shell) step() bool {
	s.spent.steps++
	if s.spent.steps > maxSteps || len(s.f.Commands) >= maxCommands {
		s.f.blur(Excess)
		return false
	}
	return true
}

// stmt walks through one statement.
func (s *shell) stmt(st *syntax.Stmt, in input) {
	if !s.step() {
		return
	}
	in = s.redirects(st.Redirs, in, st.Cmd)
	switch cmd := st.Cmd.(type) {
	case nil:
	case *syntax.CallExpr:
		s.simple(cmd, st.Redirs, in)
	case *syntax.BinaryCmd:
		s.binary(cmd, in)
	case *syntax.Block:
		s.stmts(cmd.Stmts, in)
	case *syntax.Subshell:
		s.sub(func() { s.stmts(cmd.Stmts, in) })
	case *syntax.IfClause:
		for c := cmd; c != nil; c = c.Else {
			s.stmts(c.Cond, in)
			s.stmts(c.Then, in)
		}
	case *syntax.WhileClause:
		s.stmts(cmd.Cond, in)
		s.stmts(cmd.Do, in)
	case *syntax.ForClause:
		s.loop(cmd, in)
	case *syntax.CaseClause:
		s.word(cmd.Word)
		for _, item := range cmd.Items {
			s.stmts(item.Stmts, in)
		}
	case *syntax.FuncDecl:
		if cmd.Name != nil {
			if s.funcs == nil {
				s.funcs = map[string]*function{}
			}
			s.funcs[cmd.Name.Value] = &function{body: cmd.Body}
		}
	case *syntax.DeclClause:
		s.assign(cmd.Args)
	case *syntax.TimeClause:
		if cmd.Stmt != nil {
			s.stmt(cmd.Stmt, in)
		}
	case *syntax.CoprocClause:
		s.stmt(cmd.Stmt, in)
	default: // tests and arithmetic run nothing but the substitutions in them
		s.substitutions(cmd)
	}
}

// binary walks through a && b, a || b and a | b. What a prints is the input of b.
func (s *shell) binary(cmd *syntax.BinaryCmd, in input) {
	if cmd.Op != syntax.Pipe && cmd.Op != syntax.PipeAll {
		s.stmt(cmd.X, in)
		s.stmt(cmd.Y, in)
		return
	}
	before := in
	s.sub(func() { s.stmt(cmd.X, before) })
	s.sub(func() { s.stmt(cmd.Y, input{kind: inputPipe, printer: cmd.X, before: &before}) })
}

// loop walks through the body of a for once for each word.
func (s *shell) loop(cmd *syntax.ForClause, in input) {
	words, isWords := cmd.Loop.(*syntax.WordIter)
	if !isWords {
		s.substitutions(cmd.Loop)
		s.stmts(cmd.Do, in)
		return
	}
	items, _ := s.words(words.Items)
	if len(words.Items) == 0 { // over the arguments, which are known to few
		items = []word{{text: "$@"}}
	}
	for _, item := range items {
		s.setVariable(words.Name.Value, value(item))
		s.stmts(cmd.Do, in)
	}
}

// call walks through the body of a function.
func (s *shell) call(fn *function) {
	fn.called = true
	if fn.inside {
		s.f.blur(Recursion)
		return
	}
	fn.inside = true
	s.stmt(fn.body, input{})
	fn.inside = false
}

// assign notes what a text sets a variable to.
func (s *shell) assign(all []*syntax.Assign) {
	for _, a := range all {
		if v, ok := s.assigned(a); ok {
			s.setVariable(a.Name.Value, v)
		}
	}
}

// assigns are the variables that are set for one command. Each may use those before it.
func (s *shell) assigns(all []*syntax.Assign) map[string]string {
	set := make(map[string]string, len(all))
	for _, a := range all {
		v, ok := s.assigned(a)
		if !ok {
			continue
		}
		if set[a.Name.Value] = v.text; len(all) > 1 {
			s.setVariable(a.Name.Value, v)
		}
	}
	return set
}

// assigned is what an assignment sets its variable to.
func (s *shell) assigned(a *syntax.Assign) (v value, ok bool) {
	if a.Name == nil || (a.Value == nil && a.Array == nil) {
		return v, false
	}
	if a.Array != nil {
		s.substitutions(a.Array)
		v.text = "$" + a.Name.Value
	} else {
		v = value(s.word(a.Value))
	}
	if a.Append {
		before, ok := s.vars[a.Name.Value]
		v = value{before.text + v.text, ok && before.known && v.known}
	}
	if len(v.text) > maxVariable {
		s.f.blur(Excess)
		v = value{text: "$" + a.Name.Value}
	}
	return v, true
}

// substitutions walks through the commands in $(…), <(…) and the like, wherever they stand in a node.
func (s *shell) substitutions(node syntax.Node) {
	if node == nil {
		return
	}
	syntax.Walk(node, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			s.sub(func() { s.stmts(n.Stmts, input{}) })
			return false
		case *syntax.ProcSubst:
			s.sub(func() { s.stmts(n.Stmts, input{}) })
			return false
		}
		return true
	})
}

// redirects notes the files that are redirected from and to, and returns the input of the command.
func (s *shell) redirects(all []*syntax.Redirect, in input, cmd syntax.Command) input {
	for _, r := range all { // what is read decides what is written, wherever it stands
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			in = inputOf(s.document(r))
		case syntax.WordHdoc:
			in = inputOf(s.word(r.Word))
		}
	}
	for _, r := range all {
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc, syntax.WordHdoc:
			continue
		case syntax.DplIn, syntax.DplOut:
			continue // a number, or a name of a descriptor
		}
		target := s.word(r.Word)
		if host, ok := deviceHost(target.text); ok { // bash opens a connection for /dev/tcp/HOST/PORT
			s.f.addHost(host)
			in = input{kind: inputUnknown, download: true}
			continue
		}
		path := s.base.Abs(target.text)
		switch r.Op {
		case syntax.RdrIn:
			s.f.add(reads, path)
			in = s.contents(path)
		default:
			s.f.add(writes, path)
			if !isStream(path) {
				s.setFile(path, s.printed(cmd, in))
			}
		}
	}
	return in
}

// inputOf is a text as an input.
func inputOf(w word) input {
	if !w.known {
		return input{kind: inputUnknown, text: w.text}
	}
	return input{kind: inputText, text: w.text}
}

// contents is the input from a file: known if the text itself has written it.
func (s *shell) contents(path string) input {
	if isStream(path) {
		return input{}
	}
	written, ours := s.files[path]
	if !ours || !written.known {
		return input{kind: inputUnknown, download: written.download}
	}
	return input{kind: inputText, text: written.content}
}
