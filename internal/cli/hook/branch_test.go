package hook

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestTheBranchIsThatOfTheFolder(t *testing.T) {
	t.Parallel()
	at := t.TempDir()
	write := func(path, text string) {
		t.Helper()
		path = filepath.Join(at, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	commit := strings.Repeat("0a", 20)
	write("shop/.git/HEAD", "ref: refs/heads/feature/prices\n")
	write("shop/deep/er/x", "")
	write("shop/.git/worktrees/w/HEAD", "ref: refs/heads/hotfix\n")
	write("relative/.git", "gitdir: ../shop/.git/worktrees/w\n")
	write("absolute/.git", "gitdir: "+at+"/shop/.git/worktrees/w\n")
	write("detached/.git/HEAD", commit+"\n")
	write("other/.git/HEAD", "root:x:0:0:root:/\n")
	write("long/.git/HEAD", "ref: refs/heads/"+strings.Repeat("x", 1<<20))
	write("circle/.git", "gitdir: .\n")
	for _, name := range []string{"pipe/.git", "piped/.git/HEAD"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(at, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(filepath.Join(at, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for folder, want := range map[string]string{
		"shop": "feature/prices", "shop/deep/er": "feature/prices", "relative": "hotfix", "absolute": "hotfix",
		"detached": "none, at the commit " + commit, "other": "", "pipe": "", "piped": "", "circle": "", "missing": "",
		"long": strings.Repeat("x", maxLine-len("ref: refs/heads/")),
	} {
		if got := branchOf(filepath.Join(at, folder)); got != want {
			t.Errorf("%s is on %q, want %q", folder, got, want)
		}
	}
	if got := branchOf("shop"); got != "" {
		t.Errorf("a folder that depends on ours is on %q", got)
	}
}
