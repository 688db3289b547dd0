package engine

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// probeTime is how long codex may take to say whether it has a sandbox. One that is still busy then may have one: without
// it, codex runs no command.
const probeTime = 30 * time.Second

// codexCannot asks codex to run nothing in its sandbox, if something hints that it has none here: its folder is one of
// temporary files, where it puts no helper for the sandbox, or nobody may make a user namespace. Its model would be told
// of each command that it cannot be run, and codex would end well with nothing done. Tried with 0.166.0.
func codexCannot(j Job) string {
	if runtime.GOOS != "linux" || j.Sandboxed || j.Mode != Read && j.Mode != Edit { // in ours it has none of its own
		return ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	home := or(os.Getenv("CODEX_HOME"), filepath.Join(os.Getenv("HOME"), ".codex"))
	temporary := strings.HasPrefix(home+"/", strings.TrimSuffix(os.TempDir(), "/")+"/")
	if !temporary && exec.CommandContext(ctx, "unshare", "--map-root-user", "--mount", "true").Run() == nil {
		return ""
	}
	var said bytes.Buffer
	//nolint:gosec // it is the program of the run
	cmd := exec.CommandContext(ctx, or(j.Settings.Command, "codex"), "sandbox", "-c", `sandbox_mode="workspace-write"`, "--", "true")
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = j.Dir, &said, time.Second
	var exit *exec.ExitError
	// A version that does not know these words ends with 2, and one that is killed with less than 0.
	if !errors.As(cmd.Run(), &exit) || exit.ExitCode() < 0 || exit.ExitCode() == 2 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	why := "its sandbox, which holds it to the mode, does not work (" + lines[len(lines)-1] + ")"
	if temporary {
		why += "; its folder " + home + " is one of temporary files: set CODEX_HOME to another, or install bubblewrap 0.9 or newer"
	}
	return why
}

// opencodePlugin is a plugin that the folder of a run, or one above it, brings along, "" if none does. opencode runs
// those although it is told to leave the project's configuration out. The person's own, in the home folder, are
// nobody else's. Tried with 1.18.33.
func opencodePlugin(dir string) string {
	home, _ := os.UserHomeDir()
	var folders []string
	for _, at := range []string{dir, resolved(dir)} {
		for ; ; at = filepath.Dir(at) {
			if at != home && resolved(at) != resolved(home) {
				folders = append(folders, at, filepath.Join(at, ".opencode"))
			}
			if at == filepath.Dir(at) {
				break
			}
		}
	}
	for _, folder := range folders {
		for _, name := range []string{"opencode.json", "opencode.jsonc"} {
			file := filepath.Join(folder, name)
			text, _ := os.ReadFile(file) // what we cannot read, opencode cannot either
			// Not parsed: what another reader makes of it may differ. A \u may begin any name.
			if bytes.Contains(text, []byte(`"plugin`)) || bytes.Contains(text, []byte(`\u`)) {
				return file
			}
		}
		if filepath.Base(folder) != ".opencode" {
			continue
		}
		for _, name := range []string{"plugin", "plugins"} {
			entries, _ := os.ReadDir(filepath.Join(folder, name))
			for _, entry := range entries {
				if ext := filepath.Ext(entry.Name()); ext == ".ts" || ext == ".js" {
					return filepath.Join(folder, name, entry.Name())
				}
			}
		}
	}
	return ""
}

// resolved is a path without links, or as it is if that cannot be known.
func resolved(path string) string {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		return target
	}
	return path
}
