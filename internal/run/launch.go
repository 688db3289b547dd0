package run

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"signalbox/internal/fault"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/sandbox"
	"signalbox/internal/run/worktree"
)

// checkLaunch checks where a run may work that the server is to start (RUN-39). It returns the folder with links
// resolved, which is the one that was checked: a link that changes later leads nowhere else.
func (s *Runs) checkLaunch(ctx context.Context, b opened, more []string) (opened, error) {
	folders := slices.Concat(s.Folders, more)
	if len(folders) == 0 || s.Supervise == nil {
		return b, fault.New(fault.Forbidden,
			"This server starts no runs. Name the folders that runs may work in with "+
				"`signalbox config set runs.folders /srv/repo`.").About("dir")
	}
	dir, within := Inside(b.Dir, folders)
	if info, err := os.Stat(dir); b.Dir == "" || err != nil || !info.IsDir() {
		return b, fault.New(fault.InvalidPayload, "dir should be an existing folder, such as %s.", folders[0]).About("dir")
	}
	if !within {
		return b, fault.New(fault.Forbidden, "Runs may not work in %.200q. runs.folders says where they may: %s.", b.Dir,
			strings.Join(folders, ", ")).About("dir")
	}
	e, err := engine.Find(b.Engine)
	if err != nil {
		return b, err
	}
	if s.Mode != nil {
		b.Mode = s.Mode(b.Engine, b.Mode)
		b.Supervised = b.Mode == engine.Supervised
	}
	// Before anything is recorded.
	if err := e.May(engine.Job{Mode: b.Mode, Dir: dir, Sandboxed: b.Sandbox}); err != nil {
		return b, err
	}
	if b.Sandbox {
		if err := sandbox.Check(ctx); err != nil {
			return b, err
		}
	}
	if b.Worktree {
		if err := worktree.Check(ctx, dir); err != nil {
			return b, err
		}
	}
	b.Dir = dir
	return b, nil
}

// sandboxed finds out whether a run is in a sandbox: as it was asked for, or as the run before it in its session was. A
// run that the server starts has what its configuration says; whoever runs one reads that by itself.
func (s *Runs) sandboxed(ctx context.Context, n Request, b opened) (bool, error) {
	if n.Sandbox != nil {
		return *n.Sandbox, nil
	}
	if b.Launched && s.Sandboxed != nil && s.Sandboxed(b.Engine) {
		return true, nil
	}
	if b.Resume == "" {
		return false, nil
	}
	before, err := s.Latest(ctx, engine.Resume{Engine: b.Engine, Value: b.Resume})
	if fault.Is(err, fault.NotFound) {
		return false, nil
	}
	return before.Sandbox, err
}

// Inside resolves the links of a path, and reports whether it is one of the folders, or inside of one.
func Inside(path string, folders []string) (resolved string, within bool) {
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil || path == "" {
		return path, false
	}
	for _, folder := range folders {
		if allowed, err := filepath.EvalSymlinks(folder); err == nil &&
			(resolved == allowed || strings.HasPrefix(resolved, strings.TrimSuffix(allowed, "/")+"/")) {
			within = true
		}
	}
	return resolved, within
}

// Detached starts a program that outlives this process: in a session of its own, with
// its output in a file. It works in /, so that no file system is kept busy by it.
func Detached(logFile, program string, args ...string) error {
	if err := os.MkdirAll(filepath.Dir(logFile), 0o700); err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot make the folder %s.", filepath.Dir(logFile))
	}
	out, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fault.Wrap(err, fault.StoreReadOnly, "Cannot write %s.", logFile)
	}
	defer func() { _ = out.Close() }()
	cmd := exec.Command(program, args...) //nolint:noctx // it is to outlive us
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/"
	// What a person's commands use is not for it: it calls the server that has started it, with its token.
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return name == "SIGNALBOX_TOKEN" || name == "SIGNALBOX_KEY" || name == "SIGNALBOX_SERVER"
	})
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fault.Wrap(err, fault.Internal, "Cannot start the supervisor of the run.")
	}
	go func() { _ = cmd.Wait() }() // while we live; when we die, init does
	return nil
}
