package testbed

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Git runs git in a folder, as Kay and without the configuration of this machine, and returns what it prints.
func Git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=Kay",
		"GIT_AUTHOR_EMAIL=kay@example.com", "GIT_COMMITTER_NAME=Kay", "GIT_COMMITTER_EMAIL=kay@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}
