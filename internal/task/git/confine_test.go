package git_test

import (
	"os"
	"path/filepath"
	"testing"

	"signalbox/internal/task/git"
	"signalbox/internal/testbed"
)

// TestGitReadsNothingOutsideOfTheRepository puts links there after the repository was opened and checked, as somebody
// does who waits for the moment in which git reads.
func TestGitReadsNothingOutsideOfTheRepository(t *testing.T) {
	if !git.Confined() {
		testbed.Missing(t, "this kernel has no Landlock")
	}
	root := t.TempDir()
	if plain, err := filepath.EvalSymlinks(root); err == nil {
		root = plain
	}
	commits := map[string]string{}
	for _, name := range []string{"work", "secret"} {
		dir := filepath.Join(root, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		testbed.Git(t, dir, "init", "-q", "-b", "main")
		testbed.Git(t, dir, "commit", "-q", "--allow-empty", "-m", name)
		commits[name] = testbed.Git(t, dir, "rev-parse", "HEAD")
	}
	work := filepath.Join(root, "work")
	repo, err := git.Open(t.Context(), []string{work}, work)
	if err != nil {
		t.Fatal(err)
	}
	want := func(why, name, hash string) {
		t.Helper()
		if got, err := repo.Commit(t.Context(), name); err != nil || got != hash {
			t.Errorf("%s: %q %v", why, got, err)
		}
	}
	want("its own commit", commits["work"], commits["work"])
	objects, theirs := filepath.Join(work, ".git", "objects"), filepath.Join(root, "secret", ".git", "objects")
	borrow := filepath.Join(objects, "info", "alternates")
	testbed.Write(t, borrow, theirs+"\n")
	if got := testbed.Git(t, work, "cat-file", "-t", commits["secret"]); got != "commit" {
		t.Fatalf("git alone does not find it: %s", got)
	}
	want("through alternates", commits["secret"], "")
	if err := os.Remove(borrow); err != nil {
		t.Fatal(err)
	}
	folder := commits["secret"][:2]
	for _, err := os.Stat(filepath.Join(objects, folder)); err == nil; _, err = os.Stat(filepath.Join(objects, folder)) {
		testbed.Git(t, filepath.Join(root, "secret"), "commit", "-q", "--allow-empty", "-m", folder) // in a folder that work has not
		commits["secret"] = testbed.Git(t, filepath.Join(root, "secret"), "rev-parse", "HEAD")
		folder = commits["secret"][:2]
	}
	if err := os.Symlink(filepath.Join(theirs, folder), filepath.Join(objects, folder)); err != nil {
		t.Fatal(err)
	}
	if got := testbed.Git(t, work, "cat-file", "-t", commits["secret"]); got != "commit" {
		t.Fatalf("git alone does not find it: %s", got)
	}
	want("through a link", commits["secret"], "")
	want("its own commit, still", commits["work"], commits["work"])
	// The folder itself is another by now.
	if err := os.Rename(filepath.Join(work, ".git"), filepath.Join(work, "away")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(root, "secret", ".git"), filepath.Join(work, ".git")); err != nil {
		t.Fatal(err)
	}
	if got, err := repo.Commit(t.Context(), commits["secret"]); err == nil {
		t.Errorf("through a link in the place of .git: %q", got)
	}
}
