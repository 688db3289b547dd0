package run

import (
	"context"
	"os"
	"time"

	"signalbox/internal/cli/hook"
	"signalbox/internal/run/engine"
)

// guard holds the CLI to the mode of the run (RUN-52), and makes a supervised one ask us before each tool call (RUN-41),
// until remove is called. The files and the socket are in a folder of this run alone, which remove
// deletes. If any of it fails, the run does not start.
func (r *runner) guard(ctx context.Context) (remove func(), err error) {
	if r.spec.Job.Mode == engine.Own && !r.boxed {
		return func() {}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(r.spec.Engine.Folder(r.spec.Job.Mode), "signalbox-run-")
	if err != nil {
		return nil, err
	}
	remove = func() { _ = os.RemoveAll(dir) }
	if r.own = dir; r.spec.Job.Mode == engine.Own {
		return remove, nil
	}
	var reach []string
	if r.spec.Job.Mode == engine.Supervised {
		if reach, err = r.openDesk(ctx, dir); err != nil {
			remove()
			return nil, err
		}
		// The desk is closed first: hooks that still wait are denied before their files are
		// gone.
		remove = func() { r.desk.Close(); _ = os.RemoveAll(dir) }
	}
	r.spec.Job.Sandboxed = r.boxed
	held, err := r.spec.Engine.Permit(engine.Permit{
		Mode: r.spec.Job.Mode, Job: r.spec.Job, Dir: dir, Program: self, Reach: reach,
	})
	if err != nil {
		remove()
		return nil, err
	}
	r.spec.Job.Guard, r.spec.Env, r.changed = held.Args, append(r.spec.Env, held.Env...), held.Home
	return remove, nil
}

// openDesk answers the hooks of a supervised run, which reach it with these arguments.
func (r *runner) openDesk(ctx context.Context, dir string) (reach []string, err error) {
	// The desk gives up an hour before the CLI gives up on its hook, so that the CLI hears
	// a denial instead of timing out.
	desk, err := hook.OpenDesk(ctx, r.App, dir, hook.Behalf{User: r.user, Token: r.token()}, engine.GuardTime-time.Hour)
	if err != nil {
		return nil, err
	}
	if r.offline {
		if err := desk.GoOn(ctx); err != nil {
			desk.Close()
			return nil, err
		}
	}
	r.desk = desk
	return desk.Arguments(), nil
}
