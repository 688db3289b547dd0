package run

import (
	"context"
	"os"
	"time"

	"signalbox/internal/cli/hook"
	"signalbox/internal/run/engine"
)

// guard makes a supervised CLI ask us before each tool call (RUN-41), until remove is
// called. The files and the socket are in a folder of this run alone, which remove
// deletes. If any of it fails, the run does not start.
func (r *runner) guard(ctx context.Context) (remove func(), err error) {
	if !r.spec.Job.Supervised {
		return func() {}, nil
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "signalbox-run-")
	if err != nil {
		return nil, err
	}
	// The desk gives up an hour before the CLI gives up on its hook, so that the CLI hears
	// a denial instead of timing out.
	desk, err := hook.OpenDesk(ctx, r.App, dir, hook.Behalf{User: r.user, Token: r.token()}, engine.GuardTime-time.Hour)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	if r.offline {
		if err := desk.GoOn(ctx); err != nil {
			desk.Close()
			_ = os.RemoveAll(dir)
			return nil, err
		}
	}
	r.desk = desk
	// The desk is closed first: hooks that still wait are denied before their files are
	// gone.
	remove = func() { desk.Close(); _ = os.RemoveAll(dir) }
	if r.spec.Job.Guard, err = r.spec.Engine.Guard(dir, self, desk.Arguments()...); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}
