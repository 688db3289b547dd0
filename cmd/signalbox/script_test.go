package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"signalbox/internal/store/storetest"
)

// TestScripts uses the command line as a person would, on every database.
func TestScripts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		if !strings.HasPrefix(address, "postgres") {
			address = ""
		}
		testscript.Run(t, testscript.Params{
			Dir: filepath.Join("testdata", "script"),
			Setup: func(e *testscript.Env) error {
				database := address
				if database != "" {
					// Scripts run beside one another; each has a schema of its own.
					database = storetest.Schema(t, os.Getenv("SIGNALBOX_TEST_POSTGRES"))
				}
				e.Setenv("SIGNALBOX_DATA", filepath.Join(e.WorkDir, "data"))
				e.Setenv("SIGNALBOX_DB", database)
				e.Setenv("SIGNALBOX_LISTEN", "127.0.0.1:0")
				e.Setenv("PATH", filepath.Dir(binary)+string(os.PathListSeparator)+os.Getenv("PATH"))
				return nil
			},
			Cmds: map[string]func(*testscript.TestScript, bool, []string){
				"ready": ready, "remember": remember, "replace": replace,
			},
		})
	})
}

// ready waits for the server that the script has started.
func ready(ts *testscript.TestScript, _ bool, _ []string) {
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if ts.Exec("signalbox", "status") == nil {
			return
		}
	}
	ts.Fatalf("the server does not become ready")
}

// remember NAME PATTERN sets a variable to what the pattern's group finds in the
// last output.
func remember(ts *testscript.TestScript, _ bool, args []string) {
	found := regexp.MustCompile(args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if found == nil {
		ts.Fatalf("%s is not in the output", args[1])
	}
	ts.Setenv(args[0], found[len(found)-1])
}

// replace OLD NEW FILE changes a file, as somebody would who tampers with it.
func replace(ts *testscript.TestScript, _ bool, args []string) {
	before := ts.ReadFile(args[2])
	after := strings.Replace(before, args[0], args[1], 1)
	if before == after {
		ts.Fatalf("%s has no %q", args[2], args[0])
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[2]), []byte(after), 0o600))
	_, _ = fmt.Fprintln(ts.Stdout(), "changed")
}
