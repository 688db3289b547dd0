package facts

import (
	"slices"
	"strings"
)

// wrapper is a program that runs another one, which stands after its own flags and operands.
type wrapper struct {
	values   string // its flags that have a value in the next word, separated by spaces
	operands int    // how many operands come before the command
	text     string // a flag whose value is a shell text
	only     bool   // it runs nothing but that text
	shell    bool   // without a command it is a shell that runs its input
	chdir    string // a flag whose value is the folder that the command runs in; also --chdir
}

// wrappers are the programs that run another one.
var wrappers = map[string]wrapper{
	"sudo": {
		values: "-u -g -h -p -C -T -r -t -D -R -U --user --group --host --prompt --chdir --chroot --close-from",
		shell:  true,
		chdir:  "-D",
	},
	"doas":             {values: "-u -C", shell: true},
	"pkexec":           {values: "--user"},
	"env":              {values: "-u -C -P --unset --chdir", text: "-S", chdir: "-C"},
	"nohup":            {},
	"setsid":           {},
	"exec":             {values: "-a"},
	"builtin":          {},
	"time":             {values: "-f -o"},
	"noglob":           {},
	"nocorrect":        {},
	"chronic":          {},
	"caffeinate":       {values: "-t -w"},
	"unbuffer":         {},
	"eatmydata":        {},
	"busybox":          {},
	"toybox":           {},
	"fakeroot":         {},
	"setarch":          {operands: 1},
	"linux64":          {},
	"catchsegv":        {},
	"dbus-run-session": {},
	"nice":             {values: "-n --adjustment"},
	"ionice":           {values: "-c -n -p --class --classdata"},
	"timeout":          {values: "-s -k --signal --kill-after", operands: 1},
	"stdbuf":           {values: "-i -o -e"},
	"chroot": {
		operands: 1,
	},
	"taskset": {operands: 1},
	"chrt":    {operands: 1},
	"flock":   {values: "-w", operands: 1, text: "-c"},
	"strace":  {values: "-e -o -p -s -u -E"},
	"ltrace":  {values: "-e -o -p -s -u"},
	"prlimit": {},
	"numactl": {},
	"unshare": {
		values: "-S -G -R -w",
	},
	"nsenter":     {values: "-t -S -G"},
	"setpriv":     {},
	"systemd-run": {values: "-p -u -M"},
	"firejail":    {},
	"proot":       {values: "-r -b -w"},
	"gosu":        {operands: 1},
	"su-exec":     {operands: 1},
	"dumb-init":   {},
	"tini":        {},
	"watch":       {values: "-n --interval"},
	"entr":        {},
	"xvfb-run":    {values: "-n -s"},
	"rlwrap":      {},
	"su":          {values: "-s --shell -g -G", text: "-c", only: true, shell: true},
	"runuser":     {values: "-u -s -g -G", text: "-c", shell: true},
	"script": {
		values: "-O -I -B",
		text:   "-c",
		only:   true,
	},
	"sg":                {operands: 1, text: "-c"},
	"parallel":          {values: "-j -n -N -a --jobs"},
	"start-stop-daemon": {},
	"daemonize":         {},
	"nix-shell":         {values: "-p -I", text: "--run", only: true},
	"run-parts":         {},
}

// unwrap follows a wrapper to the command that it runs.
func (s *shell) unwrap(w wrapper, a argv) {
	args := a.words[1:]
	defer func(before Base) { s.base = before }(s.base)
	set := map[string]string{}
	operands := w.operands
	for len(args) > 0 {
		arg := args[0].text
		switch {
		case w.text != "" && isTextFlag(w.text, arg) && len(args) > 1:
			s.sub(func() { s.text(args[1]) })
			return
		case w.text != "" && strings.HasPrefix(arg, w.text) && len(arg) > len(w.text):
			s.sub(func() { s.text(word{strings.TrimPrefix(arg[len(w.text):], "="), args[0].known}) })
			return
		case arg == "--":
			args = args[1:]
		case len(arg) > 1 && arg[0] == '-':
			skip := 1
			if isOneOf(w.values, arg) {
				skip = 2
			}
			if name, value, inline := strings.Cut(arg, "="); w.chdir != "" && (name == w.chdir || name == "--chdir") {
				if !inline && len(args) > 1 {
					value = args[1].text
				}
				s.base.CWD = s.base.Abs(value)
			}
			args = args[min(skip, len(args)):]
			continue
		case isAssignment(arg):
			name, text, _ := strings.Cut(arg, "=")
			set[name] = text
			args = args[1:]
			continue
		case operands > 0 || w.only:
			operands--
			args = args[1:]
			continue
		}
		break
	}
	if len(args) == 0 {
		if w.shell && (a.in.kind != inputNone || asksForShell(a.words)) {
			s.read(a.in)
		}
		return
	}
	for name, text := range a.assigns {
		set[name] = text
	}
	if len(set) == 0 {
		set = nil
	}
	if len(args) == 1 && strings.ContainsAny(args[0].text, " ;|&") { // watch 'rm -rf x', parallel 'gzip {}'
		s.sub(func() { s.text(args[0]) })
		return
	}
	s.program(argv{args, set, a.in})
}

// asksForShell reports whether a wrapper without a command begins a shell: su does, and sudo if it is told to.
func asksForShell(words []word) bool {
	return words[0].text == "su" || slices.ContainsFunc(words, func(w word) bool {
		return isOneOf("-s -i --shell --login", w.text)
	})
}

// isTextFlag reports whether an argument is the flag whose value is a shell text, or a cluster
// of short flags that ends with it.
func isTextFlag(flag, arg string) bool {
	return arg == flag ||
		(len(flag) == 2 && len(arg) > 2 && arg[0] == '-' && arg[1] != '-' && arg[len(arg)-1] == flag[1]) ||
		(flag == "-c" && arg == "--command") ||
		(flag == "-S" && arg == "--split-string")
}

// isAssignment reports whether a word sets a variable.
func isAssignment(text string) bool {
	name, _, ok := strings.Cut(text, "=")
	return ok && name != "" && strings.Trim(strings.ToUpper(name), "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == "" &&
		(name[0] < '0' || name[0] > '9')
}

// interpreters are programs that take code in another language, and the flags that it follows.
// What such code does is not known; see code.
var interpreters = map[string]string{
	"python": "-c", "pypy": "-c", "perl": "-e -E", "ruby": "-e", "node": "-e --eval -p --print", "nodejs": "-e -p",
	"bun": "-e --eval", "deno": "eval", "php": "-r", "lua": "-e", "osascript": "-e", "pwsh": "-c -Command",
	"powershell": "-c -Command", "awk": "", "gawk": "", "mawk": "", "nawk": "", "tclsh": "", "Rscript": "-e",
	"groovy": "-e", "julia": "-e", "xonsh": "-c", "nu": "-c", "emacs": "--eval", "vim": "-c", "vi": "-c",
	"nvim": "-c", "ex": "-c", "gdb": "-ex", "sqlite3": "-cmd",
}

// prompts are programs that run what is typed into them if they have no arguments but these.
var prompts = map[string]string{
	"python": "-i -u -q -B -", "pypy": "-i -u -", "ipython": "", "node": "-i -", "nodejs": "-i -", "deno": "repl",
	"perl": "-", "ruby": "-", "irb": "", "php": "-a", "lua": "-i -", "tclsh": "", "julia": "-i -q", "pwsh": "-NoLogo",
	"powershell": "-NoLogo", "xonsh": "", "nu": "", "gdb": "-q", "sqlite3": "",
}

// onlyHas reports whether all words are among those that stand in a text, separated by spaces.
func onlyHas(words []string, among string) bool {
	return !slices.ContainsFunc(words, func(w string) bool { return !isOneOf(among, w) })
}

// starts are words of code that starts another program, or deletes something.
var starts = []string{
	"system",
	"exec",
	"popen",
	"spawn",
	"subprocess",
	"rmtree",
	"unlink",
	"remove",
	"rmdir",
	"rmsync",
	"fork",
	"child_process",
	"shell",
	"`",
	"%x",
	"qx",
	"eval",
	"invoke",
	"remove-item",
	"delete",
	"shutil",
	"fileutils",
	"base64",
	"fromcharcode",
	"decode",
	"getattr",
	"__import__",
	"import(",
	"rename",
	":!",
	"kill",
}

// code looks at code in another language. It is opaque if it may start a program or delete
// something: what its texts become is not known. Code from a pipe or a here-document is treated alike.
func (s *shell) code(flags string, a argv) {
	look := func(w word) {
		lower := strings.ToLower(w.text)
		if !w.known || slices.ContainsFunc(starts, func(sign string) bool { return strings.Contains(lower, sign) }) {
			s.f.blur(Language)
		}
	}
	script := false
	for i, w := range a.words[1:] {
		arg := w.text
		switch {
		case flags == "" && !strings.HasPrefix(arg, "-"): // awk's program is its first operand
			look(w)
			return
		case flags != "" && isCodeFlag(flags, arg) && i+2 < len(a.words):
			look(a.words[i+2])
			return
		case strings.HasPrefix(arg, "-e") && len(arg) > 2 && strings.Contains(flags, "-e"): // perl -e'…'
			look(word{arg[2:], w.known})
			return
		case !strings.HasPrefix(arg, "-"):
			script = true
		}
	}
	if script || a.in.kind == inputNone {
		return
	}
	switch in := s.resolve(a.in); {
	case in.download:
		s.f.blur(Download)
	case in.kind == inputUnknown || in.decoded:
		s.f.blur(Printed)
	default:
		look(word{in.text, true})
	}
}

// isCodeFlag reports whether an argument is followed by code; short flags may stand together, as in perl -ne.
func isCodeFlag(flags, arg string) bool {
	for flag := range strings.FieldsSeq(flags) {
		if arg == flag || (len(flag) == 2 && len(arg) > 2 && arg[0] == '-' && arg[1] != '-' && arg[len(arg)-1] == flag[1]) {
			return true
		}
	}
	return false
}
