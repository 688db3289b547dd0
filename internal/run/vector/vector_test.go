package vector_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/run/vector"
	"signalbox/internal/testbed"
)

const amp = "../engine/testdata/amp"

// TestTheCasesThatDifferFromTheContractAreNamed, each with the reason, and nothing else is.
func TestTheCasesThatDifferFromTheContractAreNamed(t *testing.T) {
	const others = "../engine/testdata/others"
	said := map[string]bool{}
	for line := range strings.Lines(string(testbed.Read(t, filepath.Join(others, "README.md")))) {
		if cells := strings.Split(line, "|"); len(cells) == 4 && strings.TrimSpace(cells[2]) != "" {
			said[strings.TrimSpace(cells[1])] = true
		}
	}
	delete(said, "case")
	delete(said, "---")
	files, err := filepath.Glob(filepath.Join(others, "*.expected.json"))
	if err != nil || len(files) < 29 {
		t.Fatalf("%d cases: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".expected.json")
		if !said[name] {
			t.Errorf("README.md does not say how %s differs", name)
		}
		delete(said, name)
	}
	for name := range said {
		t.Errorf("README.md names %s, which is no case", name)
	}
}

// What the cases say differs from where they come from as testdata/others/README.md says.
func TestEveryCaseComesOut(t *testing.T) {
	for dir, least := range map[string]int{amp: 100, "../engine/testdata/others": 29} {
		outcomes, err := vector.Check(dir)
		if err != nil {
			t.Fatal(err)
		}
		if len(outcomes) < least {
			t.Errorf("%s: only %d cases were found", dir, len(outcomes))
		}
		for _, o := range outcomes {
			if o.Problem != "" {
				t.Errorf("%s: %s", o.Name, o.Problem)
			}
		}
	}
}

// TestAWrongExpectationIsFoundOut changes one thing at a time in a copy of the cases.
func TestAWrongExpectationIsFoundOut(t *testing.T) {
	for _, c := range []struct{ name, file, from, to string }{
		{"an answer", "001-happy-bash.expected.json", "It printed hi.", "It printed ho."},
		{"a count", "001-happy-bash.expected.json", "470", "471"},
		{"an outcome", "006-tool-error.expected.json", `"ok": false`, `"ok": true`},
		{"a pid that is none", "001-happy-bash.expected.json", `"<pid>"`, `"<cwd>"`},
		{"a missing event", "002-text-only.expected.json", `"type": "started"`, `"type": "completed"`},
		{"an absent member", "001-happy-bash.expected.json", `"level": null`, `"levels": null`},
		{"an argument", "argv.cases.json", "--stream-json\"", "--stream\""},
		{"standard input", "argv.cases.json", `"stdin": "fix the tests"`, `"stdin": "fix"`},
		{"a resume line", "resume.cases.json", `"is_resume_line": true`, `"is_resume_line": false`},
		{"a token", "resume.cases.json", `"extract": "T-abc-123"`, `"extract": "T-abc"`},
		{"a title", "titles.cases.json", `"title": "cat x"`, `"title": "cat y"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(amp)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, c.file)
			text := testbed.Read(t, path)
			changed := strings.Replace(string(text), c.from, c.to, 1)
			if changed == string(text) {
				t.Fatalf("%s has no %q", c.file, c.from)
			}
			testbed.Write(t, path, changed)
			outcomes, err := vector.Check(dir)
			if err != nil {
				t.Fatal(err)
			}
			failed := 0
			for _, o := range outcomes {
				if o.Problem != "" {
					failed++
				}
			}
			if failed != 1 {
				t.Errorf("%d cases failed, want 1", failed)
			}
		})
	}
}

func TestAFolderWithoutCasesIsAnError(t *testing.T) {
	if _, err := vector.Check(t.TempDir()); err == nil {
		t.Error("no error")
	}
}
