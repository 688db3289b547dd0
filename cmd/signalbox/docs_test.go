package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"signalbox/internal/run/runtest"
	"signalbox/internal/testbed"
)

// block is a fenced block of a page: its info string, such as "sh background" or
// "yaml policy.yaml", and its text.
type block struct {
	info, text string
	line       int
}

// pages are the documents that people follow, relative to the repository.
func pages(t *testing.T) (names []string) {
	t.Helper()
	for _, pattern := range []string{"README.md", "docs/*.md", "docs/*/*.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			name, _ := filepath.Rel(filepath.Join("..", ".."), path)
			names = append(names, name)
		}
	}
	return names
}

// readPage reads a page of the repository.
func readPage(t *testing.T, name string) string {
	t.Helper()
	text := testbed.Read(t, filepath.Join("..", "..", name))
	return string(text)
}

// blocks are the fenced blocks of a page.
func blocks(text string) (all []block) {
	var open *block
	for n, line := range strings.Split(text, "\n") {
		info, fence := strings.CutPrefix(strings.TrimLeft(line, " "), "```")
		switch {
		case fence && open == nil:
			open = &block{info: info, line: n + 1}
		case fence:
			all, open = append(all, *open), nil
		case open != nil:
			open.text += line + "\n"
		}
	}
	return all
}

// story follows one page in a folder of its own, with a server that has seen nothing yet.
type story struct {
	t    *testing.T
	p    *process
	dir  string
	seen testbed.Buffer // everything that was printed so far
	// ports are free ports for those that the page names, beside the server's.
	ports map[string]string
}

// configuredFor is what a page says that its reader's configuration has; $DIR is the reader's folder.
var configuredFor = map[string]string{"docs/cli-agents.md": "runs: {folders: [$DIR]}\n"}

// begin starts a story: a folder with the program in bin, and a server.
func begin(t *testing.T, config string, args ...string) *story {
	t.Helper()
	s := &story{t: t, dir: t.TempDir(), ports: map[string]string{}}
	data := filepath.Join(s.dir, "signalbox-data")
	configure(t, data, strings.ReplaceAll(config, "$DIR", s.dir))
	s.p = up(t, data, args...)
	if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.install("signalbox", binary)
	return s
}

// install puts a program on the reader's path.
func (s *story) install(name, target string) {
	s.t.Helper()
	if err := os.Symlink(target, filepath.Join(s.dir, "bin", name)); err != nil {
		s.t.Fatal(err)
	}
}

// copied is a value that a reader copies from what was printed before: the beginning of it, and an ellipsis.
var copied = regexp.MustCompile(`\b[A-Za-z][A-Za-z0-9]*(?:[_-][A-Za-z0-9]*)+…`)

// ownPort is a port that a page uses on this machine.
var ownPort = regexp.MustCompile(`127\.0\.0\.1(?::|", )(\d{4,5})\b`)

// fill puts the values of this server into a block.
func (s *story) fill(text string) string {
	s.t.Helper()
	seen := s.seen.String()
	text = strings.ReplaceAll(text, "http://127.0.0.1:7446", s.p.url)
	for named, free := range s.ports {
		text = regexp.MustCompile(`\b`+named+`\b`).ReplaceAllString(text, free)
	}
	return copied.ReplaceAllStringFunc(text, func(value string) string {
		prefix := strings.TrimSuffix(value, "…")
		// The newest one. What runs in the background may print an older one again at any time.
		newest := ""
		known := map[string]bool{}
		for _, found := range regexp.MustCompile(regexp.QuoteMeta(prefix)+`[0-9A-Za-z_]{4,}`).FindAllString(seen, -1) {
			if !known[found] {
				newest, known[found] = found, true
			}
		}
		if newest == "" {
			s.t.Errorf("the page says %s, and nothing that begins so was printed before", value)
			return value
		}
		return newest
	})
}

// command makes a shell that works as a reader's would, with the program on the path.
func (s *story) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "sh", args...)
	root, _ := filepath.Abs(filepath.Join("..", ".."))
	cmd.Dir = s.dir
	cmd.Env = append(cleanEnv(), "HOME="+s.dir, "SIGNALBOX_DATA="+s.p.dir, "SIGNALBOX_CHECKOUT="+root,
		"GOFLAGS=-mod=mod", "GOPROXY=off", "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
	for _, keep := range []string{"GOMODCACHE", "GOCACHE"} {
		value, err := exec.CommandContext(s.t.Context(), "go", "env", keep).Output()
		if err != nil {
			s.t.Fatal(err)
		}
		cmd.Env = append(cmd.Env, keep+"="+strings.TrimSpace(string(value)))
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	return cmd
}

// commands are the commands of a block, each with the lines that belong to it.
func (s *story) commands(text string) (all []string) {
	one := ""
	for line := range strings.Lines(text) {
		one += line
		if strings.HasSuffix(line, "\\\n") || s.command("-n", "-c", one).Run() != nil {
			continue // it goes on
		}
		all, one = append(all, one), ""
	}
	if one != "" {
		s.t.Errorf("this is not a whole command:\n%s", one)
	}
	return all
}

// ended is what the shell prints after each command, with its exit code.
var ended = regexp.MustCompile(`(?m)^--- ended with (\d+)\n`)

// run types a block into one shell, command by command: a later one may use what an earlier one printed.
func (s *story) run(b block) {
	s.t.Helper()
	shell := s.command()
	out := &testbed.Buffer{}
	both := io.MultiWriter(out, &s.seen)
	shell.Stdout, shell.Stderr = both, both
	in, err := shell.StdinPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	testbed.Background(s.t, shell)
	for n, one := range s.commands(b.text) {
		typed := s.fill(one)
		if _, err := fmt.Fprintf(in, "{\n%s\n} </dev/null\nprintf '\\n--- ended with %%d\\n' $?\n", typed); err != nil {
			s.t.Fatal(err)
		}
		var codes [][]string
		testbed.Until(s.t, "the end of "+typed, func() bool {
			codes = ended.FindAllStringSubmatch(out.String(), -1)
			return len(codes) > n
		}, out)
		if codes[n][1] != "0" {
			s.t.Fatalf("line %d:\n%s\nexit code %s:\n%s", b.line, typed, codes[n][1], out)
		}
	}
	_ = in.Close()
}

// start starts a block that goes on while the reader reads on. The function that it returns waits
// for its end; one that never ends by itself is ended as with Ctrl-C.
func (s *story) start(b block) (end func()) {
	s.t.Helper()
	out := &testbed.Buffer{}
	cmd := s.command("-e", "-c", s.fill(b.text))
	both := io.MultiWriter(out, &s.seen)
	cmd.Stdout, cmd.Stderr = both, both
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return func() {
		s.t.Helper()
		if endless.MatchString(b.text) {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
			_ = testbed.Receive(s.t, "the end of "+b.text, done) // ended by us, whatever its code
			return
		}
		if err := testbed.Receive(s.t, "the end of "+b.text, done); err != nil {
			s.t.Errorf("line %d:\n%s\n%v\n%s", b.line, b.text, err, out)
		}
	}
}

// endless are commands that go on until Ctrl-C.
var endless = regexp.MustCompile(`signalbox (up|demo\n|mcp|mail bus|harness stdio|ledger tail -f|tasks? work)|` +
	`-N |tail -f|http\.server|while `)

// namesAFile is the info string of a block whose text goes into a file.
var namesAFile = regexp.MustCompile(`^[a-z]+ ([\w.-]+\.\w+)$`)

// TestTheDocumentsCanBeFollowed runs every page from the top: what it says to type is typed, and
// what it says to write into a file is written.
func TestTheDocumentsCanBeFollowed(t *testing.T) {
	t.Parallel()
	for _, page := range pages(t) {
		text := readPage(t, page)
		all := blocks(text)
		if len(all) == 0 && !inProse.MatchString(text) {
			continue
		}
		testbed.Parallel(t, page, func(t *testing.T) {
			s := begin(t, configuredFor[page])
			for _, found := range ownPort.FindAllStringSubmatch(text, -1) {
				if found[1] != "7446" && s.ports[found[1]] == "" {
					_, s.ports[found[1]], _ = net.SplitHostPort(testbed.FreeAddress(t))
				}
			}
			for _, name := range []string{"claude", "amp", "codex", "gemini", "opencode", "pi"} {
				s.install(name, runtest.CLI{Stdout: []byte(runInit + runResult)}.Write(t))
			}
			root, err := filepath.Abs(filepath.Join("..", ".."))
			if err == nil {
				err = os.Symlink(filepath.Join(root, "docs"), filepath.Join(s.dir, "docs")) // a reader is in the checkout
			}
			if err != nil {
				t.Fatal(err)
			}
			var ends []func()
			for _, b := range all {
				file := namesAFile.FindStringSubmatch(b.info)
				switch {
				case b.info == "sh":
					s.run(b)
				case b.info == "sh background":
					ends = append(ends, s.start(b))
				case b.info == "sh elsewhere":
					s.look(b)
				case file != nil:
					s.write(file[1], b)
				case b.info == "":
					t.Errorf("line %d: a block without an info string: is it sh, text, yaml or json?", b.line)
				}
			}
			for _, end := range ends {
				end()
			}
			for _, found := range inProse.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
				s.look(block{text: strings.Join(strings.Fields(found[1]), " ")})
			}
		})
	}
}

// write writes the file that a block shows. Configuration is checked, and not put into force.
func (s *story) write(name string, b block) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	testbed.Write(s.t, path, s.fill(b.text))
	if name == "signalbox.yaml" {
		if out, err := s.command("-c", "signalbox config check signalbox.yaml").CombinedOutput(); err != nil {
			s.t.Errorf("line %d: %v %s\n%s", b.line, err, out, b.text)
		}
	}
}

// calls is a call of the program in a line of shell: at its beginning, or behind another command.
var calls = regexp.MustCompile(`(?:^\s*|[|&;]\s*|-- )(?:[A-Z_]+=\S+ )*(signalbox .*)`)

// look checks that the commands of a block that is not run here exist, with their flags.
func (s *story) look(b block) {
	s.t.Helper()
	for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
		line, _, _ = strings.Cut(line, " #")
		found := calls.FindStringSubmatch(line)
		if found == nil {
			continue
		}
		typed, _, _ := strings.Cut(found[1], "|")
		typed, _, _ = strings.Cut(typed, " -- ")
		if out, err := s.command("-c", strings.TrimSpace(typed)+" --help").CombinedOutput(); err != nil {
			s.t.Errorf("line %d: %s: %v %s", b.line, typed, err, out)
		}
	}
}

// linkForm is a link of a page.
var linkForm = regexp.MustCompile(`\]\(([^)\s]+)\)|(?:src|srcset)="([^"]+)"`)

// TestLinksBetweenTheDocumentsLeadSomewhere: every relative link names a file, and a heading if it
// has an anchor.
func TestLinksBetweenTheDocumentsLeadSomewhere(t *testing.T) {
	t.Parallel()
	for _, page := range append(pages(t), "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md") {
		prose := fenced.ReplaceAllString(readPage(t, page), "")
		for _, found := range linkForm.FindAllStringSubmatch(prose, -1) {
			target := found[1] + found[2]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file, anchor, _ := strings.Cut(target, "#")
			at := filepath.Join(filepath.Dir(page), file)
			if file == "" {
				at = page
			}
			if _, err := os.Stat(filepath.Join("..", "..", at)); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, target)
				continue
			}
			if anchor != "" && !hasHeading(readPage(t, at), anchor) {
				t.Errorf("%s links to %s, and %s has no such heading", page, target, at)
			}
		}
	}
}

var notInAnchor = regexp.MustCompile(`[^\w\- ]`)

// hasHeading reports whether a page has a heading with the anchor, as forges make them.
func hasHeading(text, anchor string) bool {
	for line := range strings.SplitSeq(text, "\n") {
		if heading := strings.TrimLeft(line, "#"); heading != line && strings.HasPrefix(heading, " ") {
			name := notInAnchor.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			if strings.ReplaceAll(name, " ", "-") == anchor {
				return true
			}
		}
	}
	return false
}

// edits is a tree of sources with changes that are on no disk but this test's: `go test -overlay`
// reads them in place of the files of the repository.
type edits struct {
	t       *testing.T
	root    string
	changed map[string]string // by path relative to the root
}

// read is a file with the changes so far.
func (e *edits) read(name string) string {
	e.t.Helper()
	if text, ok := e.changed[name]; ok {
		return text
	}
	text := testbed.Read(e.t, filepath.Join(e.root, name))
	return string(text)
}

// below adds lines under the first line that has the text, at the end of it where the text is the line's end.
func (e *edits) below(name, anchor, lines string) {
	e.t.Helper()
	before, after, found := strings.Cut(e.read(name), anchor)
	if !found {
		e.t.Fatalf("CONTRIBUTING says to look for %s in %s, which has no such line", anchor, name)
	}
	e.changed[name] = before + anchor + "\n" + lines + after
}

// overlay writes the changes for the go command and returns its flag.
func (e *edits) overlay() string {
	e.t.Helper()
	dir := e.t.TempDir()
	replace := map[string]string{}
	for name, text := range e.changed {
		at := filepath.Join(dir, strings.ReplaceAll(name, "/", "_"))
		testbed.Write(e.t, at, text)
		replace[filepath.Join(e.root, name)] = at
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		e.t.Fatal(err)
	}
	at := filepath.Join(dir, "overlay.json")
	testbed.Write(e.t, at, text)
	return "-overlay=" + at
}

// What a step says before its block.
var (
	inFile    = regexp.MustCompile("In `([^`]+)`, below `([^`]+)`:$")
	atEnd     = regexp.MustCompile("At the end of `([^`]+)`:$")
	newFile   = regexp.MustCompile("A new file `([^`]+)`:$")
	lineBreak = regexp.MustCompile(`\n *`)
	fenced    = regexp.MustCompile("(?m)^ *```(\\w*)[^\n]*\n((?:.*\n)*?) *```$")
)

// TestContributingCanBeFollowed goes through the how-tos for a call and for a page, step by step as
// CONTRIBUTING.md has them, in a copy of the sources, and runs what they say to run.
func TestContributingCanBeFollowed(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	text := readPage(t, "CONTRIBUTING.md")
	for _, title := range []string{"Add a call", "Add a page to the dashboard"} {
		testbed.Parallel(t, title, func(t *testing.T) {
			_, rest, found := strings.Cut(text, "\n## "+title+"\n")
			if !found {
				t.Fatal("there is no such chapter")
			}
			chapter, _, _ := strings.Cut(rest, "\n## ")
			e := &edits{t: t, root: root, changed: map[string]string{}}
			done := map[string]int{}
			at := 0
			for _, place := range fenced.FindAllStringSubmatchIndex(chapter, -1) {
				said := strings.TrimSpace(lineBreak.ReplaceAllString(chapter[at:place[0]], " "))
				kind, block := chapter[place[2]:place[3]], unindent(chapter[place[4]:place[5]])
				at = place[1]
				switch {
				case kind == "sh":
					e.run(block)
				case inFile.MatchString(said):
					m := inFile.FindStringSubmatch(said)
					e.below(m[1], m[2], block)
				case atEnd.MatchString(said):
					name := atEnd.FindStringSubmatch(said)[1]
					e.changed[name] = e.read(name) + block
				case newFile.MatchString(said):
					e.changed[newFile.FindStringSubmatch(said)[1]] = block
				default:
					t.Errorf("nothing says where this goes:\n%s", block)
				}
				done[kind]++
			}
			if done["go"] < 3 || done["sh"] != 1 {
				t.Errorf("the chapter has blocks %v: is it still read?", done)
			}
		})
	}
}

// unindent takes off the three spaces of a numbered step.
func unindent(block string) string {
	var out strings.Builder
	for line := range strings.Lines(block) {
		out.WriteString(strings.TrimPrefix(line, "   "))
	}
	return out.String()
}

// run runs the commands of a step on the changed sources. Each has to run tests.
func (e *edits) run(block string) {
	e.t.Helper()
	for line := range strings.Lines(block) {
		cmd := exec.CommandContext(e.t.Context(), "sh", "-c",
			strings.Replace(line, "go test ", "go test -trimpath "+e.overlay()+" ", 1))
		cmd.Dir, cmd.Env = e.root, append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Contains(string(out), "no tests to run") {
			e.t.Errorf("%s: %v\n%s", line, err, out)
		}
	}
}
