package facts

import (
	"slices"
	"strings"
)

// builtin follows commands of the shell, and programs that run others in a way of their own. It
// reports whether the command is one of them.
func (s *shell) builtin(a argv, c *Command) bool {
	switch c.Name {
	case "cd", "pushd", "chdir":
		s.chdir(c)
	case "eval":
		s.eval(a)
	case "source", ".":
		s.source(a)
	case "trap":
		s.trap(a)
	case "alias":
		s.alias(a)
	case "command":
		if !c.has("-v", "-V") { // with these it tells where a program is
			s.unwrap(wrapper{}, a)
		}
	case "set", "shift":
		s.params = nil // not followed
	case "read", "unset", "mapfile", "readarray", "getopts":
		s.forget(c)
	case "make", "gmake", "crontab": // a Makefile and a table of times from elsewhere are not followed
		if a.in.kind != inputNone {
			s.f.blur(Printed)
		}
		s.operands(c)
	case "at", "batch": // they run what they read
		if a.in.kind != inputNone {
			s.read(a.in)
		}
	case "xargs":
		s.xargs(a)
	case "find":
		s.find(a)
	case "ssh":
		s.ssh(a, c)
	case "git":
		s.git(a, c)
	case "apply_patch", "applypatch":
		s.applyPatch(a)
	case "patch":
		s.stdinPatch(a.in)
		s.operands(c)
	case "docker", "podman", "kubectl":
		s.container(a, c)
	default:
		return false
	}
	return true
}

func (s *shell) chdir(c *Command) {
	if len(c.Targets) == 0 {
		s.base.CWD = s.base.Home
		return
	}
	dir := c.Targets[0]
	if dir == "-" {
		dir = "$OLDPWD"
	}
	s.base.CWD = s.base.Abs(dir)
	s.f.add(mentions, s.base.CWD)
}

// eval runs its arguments as a text. What they are is often known; that somebody writes eval is
// reason enough to have a person look.
func (s *shell) eval(a argv) {
	s.f.blur(Eval)
	s.run(strings.Join(texts(a.words[1:]), " "))
}

func (s *shell) source(a argv) {
	if len(a.words) > 1 {
		s.scriptFile(a.words[1], a.in)
	}
}

func (s *shell) trap(a argv) {
	if len(a.words) > 2 {
		s.sub(func() { s.text(a.words[1]) })
	}
}

// alias reads the text behind a name as if it were called.
func (s *shell) alias(a argv) {
	for _, w := range a.words[1:] {
		if _, text, ok := strings.Cut(w.text, "="); ok {
			s.sub(func() { s.text(word{text, w.known}) })
		}
	}
}

// forget drops what is known of variables that are read from elsewhere.
func (s *shell) forget(c *Command) {
	for _, name := range c.Targets {
		s.setVariable(name, value{text: "$" + name})
	}
}

// xargsValues are the flags of xargs that have a value in the next word.
var xargsValues = strings.Fields("-n -P -d -L -s -a -E --max-args --max-procs --delimiter --arg-file")

// xargs follows the command that is run with the words of the input as further arguments.
func (s *shell) xargs(a argv) {
	args := a.words[1:]
	replace := ""
	for len(args) > 0 && len(args[0].text) > 1 && args[0].text[0] == '-' {
		flag := args[0].text
		args = args[1:]
		switch {
		case (flag == "-I" || flag == "--replace") && len(args) > 0:
			replace, args = args[0].text, args[1:]
		case strings.HasPrefix(flag, "-I"):
			replace = flag[2:]
		case flag == "-i":
			replace = "{}"
		case slices.Contains(xargsValues, flag) && len(args) > 0:
			args = args[1:]
		}
	}
	if len(args) == 0 {
		return // it echoes
	}
	more := []word{{text: "$(stdin)"}}
	if in := s.resolve(a.in); in.kind == inputText && !in.decoded {
		more = nil
		for field := range strings.FieldsSeq(strings.ReplaceAll(in.text, "\x00", " ")) {
			more = append(more, word{strings.Trim(field, `'"`), true})
		}
	}
	if replace != "" {
		for _, one := range more {
			s.program(argv{words: substitute(args, replace, one)})
		}
		return
	}
	words := append(append([]word{}, args...), more...)
	if isShell(args[0].text) && len(args) > 1 { // xargs sh -c '…': the input is $0 and on
		words = append(append([]word{}, args...), word{text: "sh", known: true})
		words = append(words, more...)
	} else if len(args) == 1 && isShell(args[0].text) {
		s.f.blur(Printed)
	}
	s.program(argv{words: words})
}

// substitute puts a word in place of a sign, as {}, in other words.
func substitute(args []word, sign string, by word) []word {
	out := make([]word, len(args))
	for i, w := range args {
		out[i] = w
		if strings.Contains(w.text, sign) {
			out[i] = word{strings.ReplaceAll(w.text, sign, by.text), w.known && by.known}
		}
	}
	return out
}

// narrows are the tests of find that leave something out. Without one, find names everything.
var narrows = map[string]bool{
	"-name": true, "-iname": true, "-path": true, "-ipath": true, "-wholename": true, "-regex": true, "-iregex": true,
	"-newer": true, "-mtime": true, "-mmin": true, "-atime": true, "-ctime": true, "-size": true, "-user": true,
	"-group": true, "-perm": true, "-empty": true, "-inum": true, "-samefile": true, "-links": true, "-lname": true,
}

// find follows -exec and notes what -delete deletes.
func (s *shell) find(a argv) {
	args := a.words[1:]
	var from []string
	i := 0
	for ; i < len(args) && !strings.ContainsRune("-(!", rune(firstByte(args[i].text))); i++ {
		from = append(from, args[i].text)
	}
	if len(from) == 0 {
		from = []string{"."}
	}
	pattern := ""
	for _, w := range args[i:] {
		if narrows[w.text] {
			pattern = "**/*" + pattern
		}
	}
	for j := i; j < len(args); j++ {
		if (args[j].text == "-name" || args[j].text == "-iname") && j+1 < len(args) && pattern != "" {
			pattern = "**/" + args[j+1].text
		}
	}
	for _, start := range from {
		found := s.base.Abs(start)
		if pattern != "" {
			found = strings.TrimSuffix(found, "/") + "/" + pattern
		}
		s.f.add(reads, s.base.Abs(start))
		for j := i; j < len(args); j++ {
			switch args[j].text {
			case "-delete":
				s.f.add(deletes, found)
			case "-exec", "-execdir", "-ok", "-okdir":
				end := j + 1
				for end < len(args) && args[end].text != ";" && args[end].text != "+" {
					end++
				}
				s.program(argv{words: substitute(args[j+1:end], "{}", word{found, true})})
				j = end
			case "-fprint", "-fprintf", "-fls", "-fprint0":
				if j+1 < len(args) {
					s.f.add(writes, s.base.Abs(args[j+1].text))
				}
			}
		}
	}
}

func firstByte(s string) byte {
	if s == "" {
		return 'x'
	}
	return s[0]
}

// ssh follows the command that runs on the other machine: paths there are read as if they were here.
func (s *shell) ssh(a argv, c *Command) {
	args := a.words[1:]
	for len(args) > 0 && len(args[0].text) > 1 && args[0].text[0] == '-' {
		takes := len(args[0].text) == 2 && strings.ContainsRune("bcDEeFIiJLlmOopQRSWw", rune(args[0].text[1]))
		args = args[1:]
		if takes && len(args) > 0 {
			args = args[1:]
		}
	}
	if len(args) == 0 {
		return
	}
	s.f.addHost(hostOf(args[0].text, true))
	if len(args) == 1 {
		if a.in.kind != inputNone || !c.has("-T", "-N") { // those ask for no terminal, or for no shell
			s.read(a.in)
		}
		return
	}
	known := true
	for _, w := range args[1:] {
		known = known && w.known
	}
	s.sub(func() {
		s.base = Base{Home: "~"}
		s.text(word{strings.Join(texts(args[1:]), " "), known})
	})
}

// container follows docker exec and the like to the command that runs inside.
func (s *shell) container(a argv, c *Command) {
	s.operands(c)
	s.mounts(c)
	for i, w := range a.words {
		if isShell(w.text) && i > 1 {
			s.sub(func() { s.base = Base{Home: "~"}; s.program(argv{words: a.words[i:]}) })
			return
		}
	}
}

// mounts notes the folders of this machine that a container may write to: what runs in it names them by
// other names.
func (s *shell) mounts(c *Command) {
	for i, arg := range c.Args {
		name, value, inline := strings.Cut(arg, "=")
		if !inline && i+1 < len(c.Args) {
			value = c.Args[i+1]
		}
		switch {
		case strings.HasPrefix(arg, "-v") && !strings.HasPrefix(arg, "--") && len(arg) > 2 && arg[2] != 'e': // -v/:/host
			value = arg[2:]
		case name != "-v" && name != "--volume" && name != "--mount":
			continue
		}
		if name == "--mount" {
			for part := range strings.SplitSeq(value, ",") {
				if key, source, _ := strings.Cut(part, "="); key == "source" || key == "src" {
					value = source + ":"
				}
			}
		}
		source, rest, bound := strings.Cut(value, ":")
		if bound && strings.ContainsAny(source, "/.~$") && !strings.HasSuffix(rest, ":ro") {
			s.f.add(writes, s.base.Abs(source))
		}
	}
}

// applyPatch notes the files of the patch that Codex writes as a command.
func (s *shell) applyPatch(a argv) {
	for _, w := range a.words[1:] {
		s.f.addPatch(w.text, s.base)
	}
	s.stdinPatch(a.in)
}

func (s *shell) stdinPatch(in input) {
	if in = s.resolve(in); in.kind == inputText {
		s.f.addPatch(in.text, s.base)
	}
}

// git notes what git does to files, and the folder that it works in.
func (s *shell) git(a argv, c *Command) {
	before := s.base
	defer func() { s.base = before }()
	args := a.words[1:]
	for len(args) > 0 && len(args[0].text) > 1 && args[0].text[0] == '-' {
		flag := args[0].text
		args = args[1:]
		takes := flag == "-C" || flag == "-c" || flag == "--git-dir" || flag == "--work-tree" || flag == "--namespace"
		if !takes || len(args) == 0 {
			continue
		}
		if flag == "-C" {
			s.base.CWD = s.base.Abs(args[0].text)
		}
		if flag == "-c" && strings.Contains(args[0].text, "=!") {
			s.f.blur(Eval)
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return
	}
	s.gitCommand(args[0].text, texts(args[1:]), a.in, c)
}

// gitCommand notes what one command of git does.
func (s *shell) gitCommand(verb string, args []string, in input, c *Command) {
	u := mentions
	switch verb {
	case "rm":
		if u = deletes; c.has("--cached") { // from the index alone
			return
		}
	case "clean":
		if !c.has("-n", "--dry-run") {
			s.f.add(deletes, s.base.Abs("./**/*")) // what is not tracked
			for _, place := range operandsOf(&Command{Args: args}, handling{values: "-e --exclude"}) {
				s.f.add(deletes, s.base.Abs(place))
			}
		}
		return
	case "mv", "restore", "checkout", "init", "worktree":
		u = writes
	case "apply", "am":
		s.stdinPatch(in)
		u = reads
	case "clone": // where it goes to, if that is said
		how := handling{values: "-b --branch --depth -o --origin -c"}
		if targets := operandsOf(&Command{Args: args}, how); len(targets) > 1 {
			s.f.add(writes, s.base.Abs(targets[1]))
		}
	}
	for _, arg := range args {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if host := gitHost(arg); host != "" {
			s.f.addHost(host)
			continue
		}
		if u != mentions && (verb != "checkout" || looksLikePath(arg)) {
			s.f.add(u, s.base.Abs(arg))
		}
	}
}
