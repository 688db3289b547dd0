package archtest_test

import (
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// exact is a version, and not a range of versions.
var exact = regexp.MustCompile(`^(npm:@?[\w./-]+@)?\d+\.\d+\.\d+(-[\w.]+)?$`)

// TestWhatTestsInstallIsPinned by a digest for every package, whoever it is fetched from: npm takes nothing else, and
// pip neither. No list names a registry, so that everybody's own is used.
func TestWhatTestsInstallIsPinned(t *testing.T) {
	t.Parallel()
	locks, lists := 0, 0
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch base := path.Base(name); {
		case err != nil:
			return err
		case d.IsDir() && (base == "node_modules" || strings.HasPrefix(base, ".") && base != "."):
			return fs.SkipDir
		case base == "package.json":
			locks++
			checkLock(t, path.Dir(name))
		case base == "requirements.txt":
			lists++
			checkList(t, path.Dir(name))
		}
		return nil
	})
	if err != nil || locks < 6 || lists < 2 {
		t.Errorf("%d packages of npm and %d lists of Python: %v", locks, lists, err)
	}
	script, err := os.ReadFile(filepath.Join(root, "scripts", "test-tools"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(script)) {
		installs := strings.Contains(line, "npm ci") || strings.Contains(line, "npm install")
		if installs && !strings.Contains(line, "--ignore-scripts") || strings.Contains(line, "npm install") {
			t.Errorf("scripts/test-tools installs without a lock file, or runs scripts of packages: %s", line)
		}
	}
}

// checkLock checks a package.json and the lock file beside it.
func checkLock(t *testing.T, dir string) {
	t.Helper()
	read := func(name string, into any) {
		text, err := os.ReadFile(filepath.Join(root, dir, name))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatalf("%s: %v", dir, err)
		}
	}
	var asked struct{ Dependencies map[string]string }
	var lock struct {
		Packages map[string]struct {
			Integrity, Resolved string
			Link                bool
			InBundle            bool
		}
	}
	read("package.json", &asked)
	read("package-lock.json", &lock)
	for name, version := range asked.Dependencies {
		if !exact.MatchString(version) {
			t.Errorf("%s: %s is asked for as %s, which is more than one version", dir, name, version)
		}
	}
	if len(lock.Packages) < 2 {
		t.Errorf("%s: the lock file has %d packages", dir, len(lock.Packages))
	}
	for name, p := range lock.Packages {
		if name != "" && (!strings.HasPrefix(p.Integrity, "sha512-") && !p.InBundle || p.Resolved != "" || p.Link) {
			t.Errorf("%s: %s is not pinned by a digest, or names a registry: %+v", dir, name, p)
		}
	}
}

// checkList checks a list of packages of Python and the one with digests beside it.
func checkList(t *testing.T, dir string) {
	t.Helper()
	asked, err := os.ReadFile(filepath.Join(root, dir, "requirements.txt"))
	if err != nil {
		t.Fatal(err)
	}
	pinned, err := os.ReadFile(filepath.Join(root, dir, "requirements.lock"))
	if err != nil {
		t.Fatal(err)
	}
	for want := range strings.Lines(string(asked)) {
		if !strings.Contains(string(pinned), strings.TrimSpace(want)+" ") {
			t.Errorf("%s: requirements.lock does not have %s", dir, want)
		}
	}
	if strings.Contains(string(pinned), "://") || strings.Contains(string(pinned), "index-url") {
		t.Errorf("%s: requirements.lock names where packages are fetched", dir)
	}
	for one := range strings.SplitSeq(strings.ReplaceAll(string(pinned), "\\\n", ""), "\n") {
		if one != "" && (!strings.Contains(one, "==") || !strings.Contains(one, "--hash=sha256:")) {
			t.Errorf("%s: %s is not pinned by a digest", dir, one)
		}
	}
}
