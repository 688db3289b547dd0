package facts

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// output is what a statement prints, as far as that is known without running it.
func (s *shell) output(st *syntax.Stmt, in input) input {
	in = s.resolve(in)
	for _, r := range st.Redirs {
		switch r.Op {
		case syntax.Hdoc, syntax.DashHdoc:
			in = inputOf(s.document(r))
		case syntax.WordHdoc:
			in = inputOf(s.word(r.Word))
		case syntax.RdrIn:
			in = s.contents(s.base.Abs(s.word(r.Word).text))
		}
	}
	return s.commandOutput(st.Cmd, in)
}

// outputOf is what several statements print.
func (s *shell) outputOf(all []*syntax.Stmt) input {
	if len(all) == 1 {
		return s.output(all[0], input{})
	}
	out := input{kind: inputUnknown}
	for _, st := range all {
		one := s.output(st, input{})
		out.download = out.download || one.download
		out.decoded = out.decoded || one.decoded
	}
	return out
}

// commandOutput is what a command prints, given its input.
func (s *shell) commandOutput(cmd syntax.Command, in input) input {
	switch cmd := cmd.(type) {
	case *syntax.BinaryCmd:
		if cmd.Op == syntax.Pipe || cmd.Op == syntax.PipeAll {
			return s.output(cmd.Y, s.output(cmd.X, in))
		}
		return s.outputOf([]*syntax.Stmt{cmd.X, cmd.Y})
	case *syntax.Block:
		return s.outputOf(cmd.Stmts)
	case *syntax.Subshell:
		return s.outputOf(cmd.Stmts)
	case *syntax.CallExpr:
		var words []word
		s.quietly(func() { words, _ = s.words(cmd.Args) })
		return s.programOutput(words, in)
	}
	return input{kind: inputUnknown}
}

// quietly expands words for the second time: what is in them has been noted.
func (s *shell) quietly(do func()) {
	before := s.f
	s.f = &Facts{Base: before.Base}
	do()
	s.f = before
}

// programOutput is what a program prints. Of most nothing is known but whether it passes on what
// comes from the network.
func (s *shell) programOutput(words []word, in input) input {
	for len(words) > 1 && (words[0].text == "sudo" || words[0].text == "command" || words[0].text == "env") {
		words = words[1:]
	}
	if len(words) == 0 {
		return input{kind: inputUnknown}
	}
	args := words[1:]
	known := !slices.ContainsFunc(words, func(w word) bool { return !w.known })
	switch name := path.Base(words[0].text); name {
	case "echo":
		if text, ok := echo(texts(args)); ok && known {
			return input{kind: inputText, text: text}
		}
	case "printf":
		if len(args) > 0 && known {
			if text, ok := format(args[0].text, texts(args[1:])); ok {
				return input{kind: inputText, text: text}
			}
		}
	case "cat", "tee":
		if name == "cat" && len(args) == 1 && known && args[0].text != "-" {
			return s.contents(s.base.Abs(args[0].text))
		}
		if len(args) == 0 || name == "tee" {
			return in
		}
	case "curl",
		"wget",
		"fetch",
		"aria2c",
		"http",
		"https",
		"nc",
		"ncat",
		"socat",
		"lynx",
		"ftp",
		"scp",
		"ssh",
		"gh",
		"aws":
		return input{kind: inputUnknown, download: true}
	case "base64", "base32", "xxd", "uudecode", "openssl", "gunzip", "zcat", "gzip", "bzcat", "xzcat", "rev", "tr", "od":
		return input{kind: inputUnknown, download: in.download, decoded: true}
	}
	return input{kind: inputUnknown, download: in.download, decoded: in.decoded}
}

// echo is what echo prints.
func echo(args []string) (string, bool) {
	escapes := false
	for len(args) > 0 && len(args[0]) > 1 && args[0][0] == '-' && strings.Trim(args[0][1:], "neE") == "" {
		escapes = escapes || strings.Contains(args[0], "e")
		args = args[1:]
	}
	text := strings.Join(args, " ") + "\n"
	if !escapes {
		return text, true
	}
	return format(strings.ReplaceAll(text, "%", "%%"), nil)
}

// format is what printf prints: the format once, or again for as long as there are arguments. A
// width of more than two digits is not followed, since it makes a short text long.
func format(layout string, args []string) (string, bool) {
	if wide.MatchString(layout) || len(args) > maxArgs {
		return "", false
	}
	var out strings.Builder
	for {
		text, used, err := expand.Format(nil, layout, args)
		if err != nil || out.Len() > maxVariable {
			return "", false
		}
		out.WriteString(text)
		if args = args[min(used, len(args)):]; used == 0 || len(args) == 0 {
			return out.String(), true
		}
	}
}

// wide finds a width in a format of printf that is long or an argument.
var wide = regexp.MustCompile(`%[-+ #0]*([0-9]{3,}|\*|[0-9]*\.([0-9]{3,}|\*))`)

// echoed is what a substitution prints, if it is nothing but an echo or the like.
func (s *shell) echoed(all []*syntax.Stmt) (string, bool) {
	if len(all) != 1 {
		return "", false
	}
	out := s.output(all[0], input{})
	return strings.TrimRight(out.text, "\n"), out.kind == inputText
}

// printed is what a command writes into a file.
func (s *shell) printed(cmd syntax.Command, in input) file {
	if cmd == nil {
		return file{known: true}
	}
	out := s.commandOutput(cmd, s.resolve(in))
	return file{out.text, out.kind == inputText && !out.decoded, out.download}
}
