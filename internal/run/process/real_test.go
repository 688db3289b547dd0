//go:build realcli

package process_test

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/signalbox/signalbox/internal/run/engine"
	"github.com/signalbox/signalbox/internal/run/process"
)

// TestRealCLIsTakeOurFlags runs every CLI that is installed, without an account and
// perhaps without a network: it may fail for that, and for nothing else. It is not part of
// the suite: go test -tags realcli ./internal/run/process -run RealCLIs
func TestRealCLIsTakeOurFlags(t *testing.T) {
	for _, e := range engine.All() {
		t.Run(e.Name, func(t *testing.T) {
			if _, err := exec.LookPath(e.Name); err != nil {
				t.Skip("not installed")
			}
			t.Setenv("HOME", t.TempDir())
			for _, resume := range []string{"", "3f0c9a52-7d41-4b8e-9c66-1e2f5a7b8c90"} {
				ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
				l := newLog()
				limits := process.Limits{Start: 10 * time.Second, Result: time.Second, Term: 2 * time.Second}
				process.Run(ctx, process.Spec{ID: "run_real", Engine: e, Limits: limits, Job: engine.Job{
					Prompt: "--say hi", Dir: t.TempDir(), Resume: engine.Resume{Engine: e.Name, Value: resume}, MaxUSD: 1, Settings: engine.Settings{AllowAll: true},
				}}, l.add)
				cancel()
				last := l.last(t)
				t.Logf("%d events, %.300q", len(l.events), last.Error)
				for _, bad := range []string{"nknown option", "nknown argument", "unexpected argument", "nrecognized"} {
					if strings.Contains(last.Error, bad) {
						t.Errorf("it does not take our arguments: %s", last.Error)
					}
				}
			}
		})
	}
}
