package archtest_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
