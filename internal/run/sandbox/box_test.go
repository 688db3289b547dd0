package sandbox_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/run/engine"
	"signalbox/internal/run/sandbox"
	"signalbox/internal/testbed"
)

// TestWithoutBubblewrapItIsSaidWhatToInstall, and without namespaces what an administrator may set.
func TestWithoutBubblewrapItIsSaidWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if err := sandbox.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "apt install bubblewrap") {
		t.Errorf("%v", err)
	}
	dir := t.TempDir()
	testbed.Script(t, filepath.Join(dir, "bwrap"), "echo 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
	t.Setenv("PATH", dir)
	err := sandbox.Check(t.Context())
	for _, text := range []string{"No permissions to create new namespace", "user.max_user_namespaces"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v lacks %q", err, text)
		}
	}
}

// TestFoldersThatWouldOpenTheSandboxAreRefused before anything starts.
func TestFoldersThatWouldOpenTheSandboxAreRefused(t *testing.T) {
	if err := sandbox.Check(t.Context()); err != nil {
		testbed.Missing(t, "this machine has no sandbox: %v", err)
	}
	root := t.TempDir()
	home, own, data := filepath.Join(root, "people", "me"), filepath.Join(root, "own"), filepath.Join(root, "data")
	for _, dir := range []string{filepath.Join(home, "repo"), filepath.Join(home, ".claude"), own, filepath.Join(data, "runs")} {
		testbed.Folder(t, dir)
	}
	linked := filepath.Join(home, "linked")
	testbed.Folder(t, linked)
	for link, to := range map[string]string{"link": home, "linked/.git": filepath.Join(root, "data")} {
		if err := os.Symlink(to, filepath.Join(home, link)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("HOME", home)
	e, err := engine.Find("claude")
	if err != nil {
		t.Fatal(err)
	}
	for dir, says := range map[string]string{
		filepath.Join(home, "repo"): "", home: "home folder", filepath.Dir(home): "home folder", "/": "home folder",
		filepath.Join(home, "link"): "home folder", filepath.Join(home, ".claude"): "keeps its own things", data: "the Signalbox server",
		filepath.Join(data, "runs"): "the Signalbox server", filepath.Join(root, "none"): "is none", "/usr/share": "part of the system",
		"/etc": "part of the system", own: "temporary files", linked: "is a link",
	} {
		box, err := sandbox.Open(t.Context(), sandbox.Spec{
			Engine: e, Program: "/bin/true", Dir: dir, Own: own, Self: "/bin/true", Hidden: []string{data},
		})
		if err == nil {
			box.Close()
		}
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
