// Package inspecttest starts a real virus scanner with one signature, for tests. It knows
// nothing of who sends it what.
package inspecttest

import (
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"signalbox/internal/mail/inspect"
	"signalbox/internal/testbed"
)

// Virus is the text that the scanner takes for a virus.
const Virus = "this text is what the test takes for a virus"

// Start starts clamd with one signature, that of Virus, and more lines of configuration, and returns
// its address. The daemon ends with the test. Without the program, which the script test-tools
// installs, the test is skipped; under CI that is a failure.
func Start(t testing.TB, more string) inspect.Clam {
	t.Helper()
	program := testbed.Program(t, "clamd", "/usr/sbin/clamd")
	dir, err := os.MkdirTemp("", "clam") //nolint:usetesting // the path of a socket has to be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "sock"), filepath.Join(dir, "clamd.conf")
	// One signature keeps the start fast: the real database takes a gigabyte and a minute.
	for name, text := range map[string]string{
		filepath.Join(dir, "own.ndb"): "Own.Test:0:*:" + hex.EncodeToString([]byte(Virus)) + "\n",
		config:                        "LocalSocket " + socket + "\nDatabaseDirectory " + dir + "\nForeground yes\n" + more,
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	daemon := exec.CommandContext(t.Context(), program, "--config-file", config)
	testbed.Background(t, daemon)
	// Wait until the daemon listens.
	testbed.Dial(t, "unix", socket)
	return inspect.Clam(socket)
}
