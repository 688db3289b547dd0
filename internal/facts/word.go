package facts

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

// word is a word of a command after expansion. If it is not known, the text has what a shell would
// put in as it is written, as in $BUILD/out or $(…).
type word value

// maxBraces is how many words {a,b}{1..9} may stand for.
const maxBraces = 64

// bareWords are the words of a text that is nothing but one command of bare words, as "ls -la src": many are, and need no
// parser. It is nil for any other text, and for one that a shell might read as anything else.
func bareWords(text string) (words []word) {
	for i := range len(text) {
		if !isBare[text[i]] {
			return nil
		}
	}
	words = make([]word, 0, 1+strings.Count(text, " "))
	for field := range strings.FieldsSeq(text) {
		words = append(words, word{field, true})
	}
	if len(words) == 0 || strings.Contains(words[0].text, "=") || slices.Contains(reservedWords, words[0].text) {
		return nil
	}
	return words
}

// isBare has the bytes that stand for themselves wherever they are in a word, and the blank.
var isBare = func() (is [256]bool) {
	for _, c := range []byte(" _-./,:@%+=0123456789" + letters) {
		is[c] = true
	}
	return is
}()

// reservedWords begin something else than a simple command.
var reservedWords = []string{
	"if", "then", "elif", "else", "fi", "while", "until", "for", "select", "foreach", "case", "esac", "in", "do", "done",
	"function", "time", "coproc", "let", "declare", "local", "export", "readonly", "typeset", "nameref", "eval", "end",
	"repeat", "nocorrect",
}

// words expands several words; one may become several, or none. It reports whether all of them were
// plain.
func (s *shell) words(all []*syntax.Word) (out []word, allPlain bool) {
	out, allPlain = make([]word, 0, len(all)), true
	for _, w := range all {
		if text, ok := plain(w); ok {
			out = append(out, word{text, true})
			continue
		}
		out, allPlain = append(out, s.fields(w)...), false
	}
	return out, allPlain
}

// word expands a word that stays one word, as the target of a redirection or the value of a variable.
func (s *shell) word(w *syntax.Word) word {
	if w == nil {
		return word{known: true}
	}
	if text, ok := plain(w); ok {
		return word{text, true}
	}
	return s.expand(w, expand.Literal)
}

// document expands the text of a here-document. If a part of its delimiter is quoted, the text is
// taken as it is.
func (s *shell) document(r *syntax.Redirect) word {
	if r.Hdoc == nil {
		return word{known: true}
	}
	if delimiter := r.Word.Lit(); delimiter != "" && !strings.Contains(delimiter, `\`) {
		return s.expand(r.Hdoc, expand.Document)
	}
	var text strings.Builder
	for _, part := range r.Hdoc.Parts {
		if lit, ok := part.(*syntax.Lit); ok {
			text.WriteString(lit.Value)
		}
	}
	return word{text.String(), true}
}

// plain is the text of a word without anything to expand, which most words are.
func plain(w *syntax.Word) (string, bool) {
	if len(w.Parts) != 1 {
		return "", false
	}
	switch part := w.Parts[0].(type) {
	case *syntax.Lit:
		return part.Value, !expands(part.Value)
	case *syntax.SglQuoted:
		return part.Value, !part.Dollar
	case *syntax.DblQuoted:
		if len(part.Parts) == 0 {
			return "", true
		}
		lit, ok := part.Parts[0].(*syntax.Lit)
		if ok && len(part.Parts) == 1 && !strings.Contains(lit.Value, `\`) {
			return lit.Value, true
		}
	}
	return "", false
}

// expands reports whether a shell may make something else of a text. The ~ of HEAD~1 stays.
func expands(text string) bool {
	for i := range len(text) {
		switch text[i] {
		case '\\', '{':
			return true
		case '~':
			if i == 0 || text[i-1] == ':' || text[i-1] == '=' {
				return true
			}
		}
	}
	return false
}

// expand expands a word with one of the library's functions.
func (s *shell) expand(w *syntax.Word, with func(*expand.Config, *syntax.Word) (string, error)) word {
	s.substitutions(w)
	if !s.cheap(w) {
		return word{text: written(w)}
	}
	e := &environment{s: s, known: true}
	text, err := with(e.config(), w)
	if err != nil {
		return word{text: written(w)}
	}
	return word{text, e.known}
}

// fields expands a word into those that a command gets.
func (s *shell) fields(w *syntax.Word) (out []word) {
	s.substitutions(w)
	if !fewBraces(w) {
		s.f.blur(Excess)
		return []word{{text: written(w)}}
	}
	if !s.cheap(w) {
		return []word{{text: written(w)}}
	}
	e := &environment{s: s, known: true}
	texts, err := expand.Fields(e.config(), w)
	if err != nil {
		return []word{{text: written(w)}}
	}
	for _, text := range texts {
		out = append(out, word{text, e.known})
	}
	return out
}

// cheap reports whether a word has no replacement, as in ${x//a/b}, that could make a text much
// longer. Such a word is not expanded.
func (s *shell) cheap(w *syntax.Word) bool {
	cheap := true
	syntax.Walk(w, func(n syntax.Node) bool {
		if p, ok := n.(*syntax.ParamExp); ok && p.Repl != nil && p.Param != nil {
			cheap = cheap && len(s.vars[p.Param.Value].text) < 1024 && (p.Repl.With == nil || len(written(p.Repl.With)) < 1024)
		}
		return cheap
	})
	return cheap
}

// fewBraces reports whether the braces of a word stand for few words.
func fewBraces(w *syntax.Word) bool {
	copied := &syntax.Word{Parts: append([]syntax.WordPart{}, w.Parts...)}
	if !syntax.SplitBraces(copied) {
		return true
	}
	return braceCount(copied) <= maxBraces
}

func braceCount(w *syntax.Word) int {
	product := 1
	for _, part := range w.Parts {
		b, ok := part.(*syntax.BraceExp)
		if !ok {
			continue
		}
		sum := 0
		for _, elem := range b.Elems {
			sum = min(sum+braceCount(elem), maxBraces+1)
		}
		if b.Sequence && len(b.Elems) > 1 {
			sum = sequenceCount(b.Elems[0].Lit(), b.Elems[1].Lit())
		}
		product = min(product*max(sum, 1), maxBraces+1)
	}
	return product
}

// sequenceCount is how many words {1..9} or {a..f} stands for, at most.
func sequenceCount(from, to string) int {
	a, errA := strconv.Atoi(from)
	b, errB := strconv.Atoi(to)
	if errA != nil || errB != nil {
		if len(from) == 1 && len(to) == 1 {
			return max(int(from[0])-int(to[0]), int(to[0])-int(from[0])) + 1
		}
		return maxBraces + 1
	}
	if a > b {
		a, b = b, a
	}
	if b-a < 0 || b-a > maxBraces {
		return maxBraces + 1
	}
	return b - a + 1
}

// written is a word as it stands in the text, or nearly.
func written(w *syntax.Word) string {
	var b strings.Builder
	if syntax.NewPrinter().Print(&b, w) != nil {
		return "$…"
	}
	return b.String()
}

// environment is what the library asks while it expands a word. Where the answer is not known, it
// is what was written, and known becomes false.
type environment struct {
	s     *shell
	known bool
}

func (e *environment) config() *expand.Config {
	return &expand.Config{
		Env: e,
		CmdSubst: func(w io.Writer, c *syntax.CmdSubst) error {
			if text, ok := e.s.echoed(c.Stmts); ok {
				_, err := io.WriteString(w, text)
				return err
			}
			e.known = false
			_, err := io.WriteString(w, "$(…)")
			return err
		},
		ProcSubst: func(*syntax.ProcSubst) (string, error) { return "/dev/fd/63", nil },
	}
}

// Get implements expand.Environ.
func (e *environment) Get(name string) expand.Variable {
	text := func(s string) expand.Variable { return expand.Variable{Set: true, Kind: expand.String, Str: s} }
	if user, ok := strings.CutPrefix(name, "HOME "); ok {
		return text("/home/" + user)
	}
	if v, ok := e.s.vars[name]; ok {
		if e.s.spent.expanded += len(v.text); e.s.spent.expanded > maxExpanded {
			e.s.f.blur(Excess)
			v = value{}
		}
		e.known = e.known && v.known
		return text(v.text)
	}
	switch name {
	case "HOME":
		return text(e.s.base.Home)
	case "PWD":
		if e.s.base.CWD != "" {
			return text(e.s.base.CWD)
		}
	case "IFS":
		return text(" \t\n")
	case "@", "*":
		if e.s.params != nil {
			return expand.Variable{Set: true, Kind: expand.Indexed, List: e.s.params}
		}
	}
	if i, err := strconv.Atoi(name); err == nil && i > 0 && e.s.params != nil {
		if i <= len(e.s.params) {
			return text(e.s.params[i-1])
		}
		return expand.Variable{}
	}
	e.known = false
	return text("$" + name)
}

// Each implements expand.Environ.
func (e *environment) Each(func(name string, v expand.Variable) bool) {}

var _ expand.Environ = (*environment)(nil)
