package archtest_test

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

// root is the module's root, from the folder that tests run in.
var root = filepath.Join("..", "..")

func TestEveryPackageKeepsTheRules(t *testing.T) {
	pkgs, err := readModule(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 5 {
		t.Fatalf("found only %d packages; is this test still reading the right folder?", len(pkgs))
	}
	if len(protocols) < 6 {
		t.Fatalf("found only the protocols %v; is this test still reading the server's list?", protocols)
	}
	for _, p := range pkgs {
		for _, sentence := range broken(p) {
			t.Error(sentence)
		}
	}
}

// SQLite is C translated to Go against one version of libc. With another it
// compiles, and fails now and then.
func TestLibcIsTheVersionThatSQLiteAsksFor(t *testing.T) {
	ours := requirements(t, filepath.Join(root, "go.mod"))
	out, err := command(t, "go", "list", "-m", "-json", "modernc.org/sqlite").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var m struct{ Version, GoMod string }
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	asked := requirements(t, m.GoMod)["modernc.org/libc"]
	if got := ours["modernc.org/libc"]; got != asked || asked == "" {
		t.Errorf("go.mod has modernc.org/libc %s, and modernc.org/sqlite %s asks for %q; run go get modernc.org/libc@%s", got,
			m.Version, asked, asked)
	}
}

func requirements(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.ParseLax(name, text, nil)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, r := range parsed.Require {
		versions[r.Mod.Path] = r.Mod.Version
	}
	return versions
}

func command(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	return cmd
}

// developersPath finds an absolute path of somebody's machine. Temporary and system
// folders are the same everywhere.
var developersPath = regexp.MustCompile("(?m)(?:^|[\\s\"'`=(:,\\[])/(?:work|root|home|Users)/[\\w.-]+")

func TestNoTrackedFileNamesAFolderOfSomebodysMachine(t *testing.T) {
	list, err := command(t, "git", "ls-files", "-z").Output()
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("git ls-files: %v", err)
		}
		t.Skipf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			continue // removed and not yet committed, or not text
		}
		for _, found := range developersPath.FindAllString(string(text), -1) {
			t.Errorf("%s contains %q: nobody else has that folder", name, strings.TrimSpace(found))
		}
	}
}

// ways are what writes a text as it is, and the files that may: a text of an agent goes through show.
var ways = map[string][]string{
	`\.Exactly\(\)`: {
		"internal/cli/bench/proxy.go", "internal/cli/cli.go", "internal/cli/command/app.go", "internal/cli/conform.go",
		"internal/cli/harness/harness.go", "internal/cli/hook/command.go", "internal/cli/mcp.go",
		"internal/cli/rules/rules.go", "internal/cli/run/translate.go", "internal/cli/run/view.go", "internal/cli/screen/screen.go",
		"internal/cli/task/work.go", "internal/cli/up.go",
	},
	`\boutput\.Shown\(`: {"internal/cli/run/view.go"},
	`\btemplate\.(HTML|URL|JS|CSS|HTMLAttr|JSStr|Srcset)\(`: {
		"internal/web/artifact.go", "internal/web/icons.go", "internal/web/markdown.go", "internal/web/words.go",
	},
	`\bshown\(`:          {"internal/web/shown.go"},
	`\bos\.Std(out|err)`: {"internal/cli/cli.go", "internal/cli/man/main.go"},
}

func TestTextsOfAgentsHaveOneWayOut(t *testing.T) {
	for pattern, allowed := range ways {
		var found []string
		for _, room := range []string{"cli", "web"} {
			err := filepath.WalkDir(filepath.Join(root, "internal", room), func(name string, _ os.DirEntry, err error) error {
				if err != nil || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
					return err
				}
				text, err := os.ReadFile(name)
				if regexp.MustCompile(pattern).Match(text) {
					found = append(found, strings.TrimPrefix(filepath.ToSlash(name), "../../"))
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(found, allowed) {
			t.Errorf("%s is in %q, and is allowed in %q: texts of agents go through show", pattern, found, allowed)
		}
	}
	templates, err := filepath.Glob(filepath.Join(root, "internal", "web", "templates", "*.html"))
	if err != nil || len(templates) < 10 {
		t.Fatalf("%d templates %v", len(templates), err)
	}
	sentBack := regexp.MustCompile(`(="|<textarea[^>]*>)\{\{exact `)
	for _, name := range templates {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if all := strings.Count(string(text), "exact "); all != len(sentBack.FindAll(text, -1)) {
			t.Errorf("%s writes a text exactly that no form sends back", name)
		}
	}
}

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
