package testbed

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// Missing ends a test that this machine cannot run. It is skipped, and fails with CI set: there a
// skipped test must not look like a passed one.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("CI") != "" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// Program is the path of a program that a test runs: the first of the names or paths that there is.
// Without one the test is Missing.
func Program(t testing.TB, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	Missing(t, "there is no %s, which this test takes; scripts/test-tools says where it comes from", names[0])
	return ""
}

// Installed is the path of something that scripts/test-tools puts into the cache of the user. Without it the test is
// Missing.
func Installed(t testing.TB, names ...string) string {
	t.Helper()
	path := Cache(t, names...)
	if _, err := os.Stat(path); err != nil {
		Missing(t, "%s is not installed; scripts/test-tools does that: %v", names[len(names)-1], err)
	}
	return path
}

// Cache is a path in the cache of the user, where scripts/test-tools puts what it installs.
func Cache(t testing.TB, names ...string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(cache, filepath.Join(names...))
}
