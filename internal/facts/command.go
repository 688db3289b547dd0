package facts

import (
	"path"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// argv is a command with its words, on the way to the program that it really runs.
type argv struct {
	words   []word
	assigns map[string]string
	in      input
}

// simple walks through a simple command: an assignment, a function of the text, or a program.
func (s *shell) simple(call *syntax.CallExpr, redirs []*syntax.Redirect, in input) {
	if len(call.Args) == 0 {
		s.assign(call.Assigns)
		return
	}
	var set map[string]string
	if len(call.Assigns) > 0 { // they hold for this command alone
		s.sub(func() { set = s.assigns(call.Assigns) })
	}
	words, allPlain := s.words(call.Args)
	if in.kind == inputNone && (!allPlain || len(redirs) > 0) {
		in = s.argumentInput(call.Args, redirs)
	}
	s.program(argv{words, set, in})
}

// argumentInput is what a command reads that is given a <(…) in place of a file.
func (s *shell) argumentInput(args []*syntax.Word, redirs []*syntax.Redirect) input {
	for _, w := range args {
		if in := s.wordInput(w); in.kind != inputNone {
			return in
		}
	}
	for _, r := range redirs {
		if in := s.wordInput(r.Word); in.kind != inputNone {
			return in
		}
	}
	return input{}
}

// wordInput is what a <(…) in a word prints.
func (s *shell) wordInput(w *syntax.Word) input {
	if w == nil {
		return input{}
	}
	if _, ok := plain(w); ok {
		return input{}
	}
	var in input
	syntax.Walk(w, func(n syntax.Node) bool {
		if p, ok := n.(*syntax.ProcSubst); ok && p.Op == syntax.CmdIn {
			in = s.outputOf(p.Stmts)
		}
		return in.kind == inputNone
	})
	return in
}

// program notes the command, and follows it to what it runs in turn.
func (s *shell) program(a argv) {
	if len(a.words) == 0 {
		return
	}
	if !a.words[0].known {
		s.f.blur(Variable)
	}
	if fn := s.funcs[a.words[0].text]; fn != nil {
		s.sub(func() { s.params = texts(a.words[1:]); s.call(fn) })
		return
	}
	c := s.note(a)
	if c == nil {
		return
	}
	if len(s.files) > 0 && strings.Contains(a.words[0].text, "/") {
		if written, ours := s.files[s.base.Abs(a.words[0].text)]; ours {
			s.script(written) // ./x, which the text wrote before
		}
	}
	for _, arg := range c.Args {
		if strings.Contains(arg, "://") {
			for _, u := range urlsIn(arg) {
				s.f.addHost(hostOf(u, false))
			}
		}
	}
	if s.builtin(a, c) {
		return
	}
	if w, ok := wrappers[c.Name]; ok {
		s.unwrap(w, a)
		return
	}
	if isShell(c.Name) {
		s.shellProgram(a)
		return
	}
	language := strings.TrimRight(c.Name, "0123456789.")
	if flag, ok := interpreters[language]; ok {
		s.code(flag, a)
	}
	if flags, ok := prompts[language]; ok && a.in.kind == inputNone && onlyHas(c.Args, flags) {
		s.f.blur(Typed)
	}
	s.operands(c)
}

// note adds the command to the facts.
func (s *shell) note(a argv) *Command {
	if len(s.f.Commands) >= maxCommands || len(a.words) > maxArgs {
		s.f.blur(Excess)
		return nil
	}
	n := len(a.words) - 1
	all := make([]string, 3*n) // one array for the arguments, and those of them that are targets or flags
	c := Command{Name: path.Base(a.words[0].text), Args: all[:n:n], Assigns: a.assigns}
	c.Targets, c.Flags = all[n:n:2*n], all[2*n:2*n]
	for i, w := range a.words[1:] {
		c.Args[i] = w.text
	}
	rest := false
	for _, arg := range c.Args {
		switch {
		case rest || arg == "-" || arg == "" || arg[0] != '-':
			c.Targets = append(c.Targets, arg)
		case arg == "--":
			rest = true
		default:
			c.addFlags(arg)
		}
	}
	if len(c.Targets) == 0 {
		c.Targets = nil
	}
	if len(c.Flags) == 0 {
		c.Flags = nil
	}
	if s.f.Commands == nil {
		s.f.Commands = make([]Command, 0, 2)
	}
	s.f.Commands = append(s.f.Commands, c)
	return &s.f.Commands[len(s.f.Commands)-1]
}

// addFlags notes the flags in one argument: -rf is -rf, -r and -f.
func (c *Command) addFlags(arg string) {
	name, _, _ := strings.Cut(arg, "=")
	c.Flags = append(c.Flags, name)
	if strings.HasPrefix(name, "--") || len(name) <= 2 {
		return
	}
	for _, letter := range name[1:] {
		if i := strings.IndexRune(letters, letter); i >= 0 {
			c.Flags = append(c.Flags, shortFlags[2*i:2*i+2])
		}
	}
}

// The short flags stand in one text, so that taking one out of it allocates nothing.
const (
	letters    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	shortFlags = "-a-b-c-d-e-f-g-h-i-j-k-l-m-n-o-p-q-r-s-t-u-v-w-x-y-z-A-B-C-D-E-F-G-H-I-J-K-L-M-N-O-P-Q-R-S-T-U-V-W-X-Y-Z"
)

func texts(words []word) []string {
	all := make([]string, len(words))
	for i, w := range words {
		all[i] = w.text
	}
	return all
}

// has reports whether the command has one of the flags.
func (c *Command) has(flags ...string) bool {
	return slices.ContainsFunc(flags, func(f string) bool { return slices.Contains(c.Flags, f) })
}

// script follows a text that was written into a file and is now run.
func (s *shell) script(written file) {
	switch {
	case written.known:
		s.sub(func() { s.run(written.content) })
	case written.download:
		s.f.blur(Download)
	default:
		s.f.blur(Written)
	}
}

// read follows what a shell reads from its input.
func (s *shell) read(in input) {
	in = s.resolve(in)
	switch {
	case in.download:
		s.f.blur(Download)
	case in.decoded:
		s.f.blur(Encoded)
	case in.kind == inputUnknown:
		s.f.blur(Printed)
	case in.kind == inputNone: // agents type into a shell that waits, and no hook asks about that
		s.f.blur(Typed)
	}
	if in.kind == inputText && !in.decoded {
		s.sub(func() { s.run(in.text) })
	}
}

// text follows a word that is itself a shell text.
func (s *shell) text(w word) {
	if !w.known {
		s.f.blur(Variable)
	}
	s.run(w.text)
}

// isShell reports whether a program is a shell that reads the language of this package.
func isShell(name string) bool {
	switch name {
	case "sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "rbash", "fish", "shell":
		return true
	}
	return false
}

// shellProgram follows sh -c TEXT, sh FILE and a shell that reads its input.
func (s *shell) shellProgram(a argv) {
	args := a.words[1:]
	for i := 0; i < len(args); i++ {
		arg := args[i].text
		switch {
		case arg == "--" || arg == "-":
		case arg == "--version" || arg == "--help":
			return
		case strings.HasPrefix(arg, "--"):
			if arg == "--rcfile" || arg == "--init-file" {
				i++
			}
		case len(arg) > 1 && (arg[0] == '-' || arg[0] == '+'):
			if strings.ContainsRune(arg, 'c') && arg[0] == '-' {
				s.shellText(args[i+1:])
				return
			}
			if strings.ContainsRune(arg, 'o') || strings.ContainsRune(arg, 'O') {
				i++
			}
			if strings.ContainsRune(arg, 's') {
				s.read(a.in)
				return
			}
		default:
			s.scriptFile(args[i], a.in)
			return
		}
	}
	s.read(a.in)
}

// shellText follows the words after -c: flags, the text, $0 and its arguments.
func (s *shell) shellText(args []word) {
	for len(args) > 0 && strings.HasPrefix(args[0].text, "-") && args[0].known {
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	s.sub(func() {
		s.params = []string{}
		if len(args) > 2 {
			s.params = texts(args[2:])
		}
		s.text(args[0])
	})
}

// scriptFile follows a shell that is given a file: one that the text wrote, or the end of a pipe.
func (s *shell) scriptFile(w word, in input) {
	p := s.base.Abs(w.text)
	if isStream(p) {
		s.read(in)
		return
	}
	s.f.add(reads, p)
	if written, ours := s.files[p]; ours {
		s.script(written)
	}
}
