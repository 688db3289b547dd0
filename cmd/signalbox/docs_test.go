package main

import (
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
	text, err := os.ReadFile(filepath.Join("..", "..", name))
	if err != nil {
		t.Fatal(err)
	}
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
	seen string // everything that was printed so far
	out  []*testbed.Buffer
}

// open is a value that a reader copies from what was printed before.
var open = regexp.MustCompile(`\b((?:[a-z]+[_-])+|T-)…`)

// fill puts the values of this server into a block.
func (s *story) fill(text string) string {
	s.t.Helper()
	seen := s.seen
	for _, o := range s.out {
		seen += o.String()
	}
	text = strings.ReplaceAll(text, "http://127.0.0.1:7446", s.p.url)
	return open.ReplaceAllStringFunc(text, func(value string) string {
		prefix := strings.TrimSuffix(value, "…")
		found := regexp.MustCompile(regexp.QuoteMeta(prefix)+`[0-9A-Za-z_]{6,}`).FindAllString(seen, -1)
		if len(found) == 0 {
			s.t.Errorf("the page says %s, and nothing that begins so was printed before", value)
			return value
		}
		return found[len(found)-1]
	})
}

// command makes a shell that runs a block as a reader would, with the program on the path.
func (s *story) command(text string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "sh", "-e", "-c", text)
	root, _ := filepath.Abs(filepath.Join("..", ".."))
	cmd.Dir = s.dir
	cmd.Env = append(cleanEnv(), "HOME="+s.dir, "SIGNALBOX_DATA="+s.p.dir, "SIGNALBOX_CHECKOUT="+root, "GOFLAGS=-mod=mod",
		"GOPROXY=off", "GOPATH="+os.Getenv("GOPATH"), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
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

// run runs a block that ends by itself.
func (s *story) run(b block) {
	s.t.Helper()
	cmd := s.command(s.fill(b.text))
	out, err := cmd.CombinedOutput()
	s.seen += string(out)
	if err != nil {
		s.t.Fatalf("line %d:\n%s\n%v\n%s", b.line, b.text, err, out)
	}
}

// start starts a block that goes on while the reader reads on. The function that it returns waits
// for its end; one that never ends by itself is ended as with Ctrl-C.
func (s *story) start(b block) (end func()) {
	s.t.Helper()
	out := &testbed.Buffer{}
	s.out = append(s.out, out)
	cmd := s.command(s.fill(b.text))
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	return func() {
		s.t.Helper()
		if endless.MatchString(b.text) {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
			testbed.Receive(s.t, "the end of "+b.text, done)
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
		all := blocks(readPage(t, page))
		if len(all) == 0 {
			continue
		}
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			s := &story{t: t, dir: t.TempDir()}
			s.p = up(t, filepath.Join(s.dir, "signalbox-data"))
			if err := os.Mkdir(filepath.Join(s.dir, "bin"), 0o700); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"signalbox", "claude", "amp", "codex", "gemini", "opencode", "pi"} {
				target := binary
				if name != "signalbox" {
					target = runtest.CLI{Stdout: []byte(runInit + runResult)}.Write(t)
				}
				if err := os.Symlink(target, filepath.Join(s.dir, "bin", name)); err != nil {
					t.Fatal(err)
				}
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
		})
	}
}

// write writes the file that a block shows. Configuration is checked, and not put into force.
func (s *story) write(name string, b block) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(s.fill(b.text)), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if name == "signalbox.yaml" {
		if out, err := s.command("signalbox config check signalbox.yaml").CombinedOutput(); err != nil {
			s.t.Errorf("line %d: %v %s\n%s", b.line, err, out, b.text)
		}
	}
}

// look checks that the commands of a block that is not run here exist, with their flags.
func (s *story) look(b block) {
	s.t.Helper()
	for line := range strings.SplitSeq(strings.ReplaceAll(b.text, "\\\n", " "), "\n") {
		line, _, _ = strings.Cut(line, " #")
		at := strings.Index(line, "signalbox ")
		if at < 0 || at > 0 && !strings.ContainsAny(line[at-1:at], " |&;") {
			continue
		}
		typed, _, _ := strings.Cut(line[at:], "|")
		typed, _, _ = strings.Cut(typed, " -- ")
		if out, err := s.command(strings.TrimSpace(typed) + " --help").CombinedOutput(); err != nil {
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
		for _, found := range linkForm.FindAllStringSubmatch(readPage(t, page), -1) {
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
