package archtest_test

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// fileName is a file that the page names, such as `gate/state.go`.
var fileName = regexp.MustCompile("`([a-z][\\w./-]*\\.(?:go|js|html|yaml|sums))`")

// TestTheArchitecturePageIsTrue: every file that it names exists, and every package stands in its list.
func TestTheArchitecturePageIsTrue(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "ARCHITECTURE.md"))
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	packages := map[string]bool{}
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && (base == "node_modules" || strings.HasPrefix(base, ".") && base != "."):
			return fs.SkipDir
		case !d.IsDir():
			files = append(files, name)
			if strings.HasPrefix(name, "internal/") && strings.HasSuffix(name, ".go") && !strings.Contains(name, "testdata") {
				packages[path.Dir(name)] = true
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range fileName.FindAllStringSubmatch(string(text), -1) {
		name := found[1]
		there := func(file string) bool { return file == name || strings.HasSuffix(file, "/"+name) }
		if !slices.ContainsFunc(files, there) {
			t.Errorf("ARCHITECTURE.md names %s, which does not exist", name)
		}
	}
	_, rooms, _ := strings.Cut(string(text), "\n## Rooms\n")
	rooms, _, _ = strings.Cut(rooms, "\n**")
	for dir := range packages {
		if !strings.Contains(rooms, " "+path.Base(dir)+"/") && !strings.Contains(rooms, "/"+path.Base(dir)+"/") {
			t.Errorf("%s is not in the list of ARCHITECTURE.md", dir)
		}
	}
}

// TestTheSecurityPageIsShown: every test that it names exists.
func TestTheSecurityPageIsShown(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "security.md"))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err = fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		for _, found := range declared.FindAllStringSubmatch(string(text), -1) {
			tests[found[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(string(page), -1)
	if len(named) < 20 {
		t.Errorf("docs/security.md names %d tests", len(named))
	}
	for _, found := range named {
		if !tests[found[1]] {
			t.Errorf("docs/security.md names %s, which does not exist", found[1])
		}
	}
}
