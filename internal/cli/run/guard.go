package run

import (
	"context"
	"os"
	"time"

	"signalbox/internal/cli/hook"
	"signalbox/internal/run/engine"
)

// guard makes a supervised CLI ask us before each tool call, until remove is called.
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
	desk, err := hook.OpenDesk(ctx, r.App, dir, engine.GuardTime-time.Hour)
	if err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	remove = func() { desk.Close(); _ = os.RemoveAll(dir) }
	if r.spec.Job.Guard, err = r.spec.Engine.Guard(dir, self, desk.Arguments()...); err != nil {
		remove()
		return nil, err
	}
	return remove, nil
}
