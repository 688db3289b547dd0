package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
	text, err := os.ReadFile(filepath.Join(e.root, name))
	if err != nil {
		e.t.Fatal(err)
	}
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
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			e.t.Fatal(err)
		}
		replace[filepath.Join(e.root, name)] = at
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		e.t.Fatal(err)
	}
	at := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(at, text, 0o600); err != nil {
		e.t.Fatal(err)
	}
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
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	text := readPage(t, "CONTRIBUTING.md")
	for _, title := range []string{"Add a call", "Add a page to the dashboard"} {
		t.Run(title, func(t *testing.T) {
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
