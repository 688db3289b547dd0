package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
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
				"ready": func(ts *testscript.TestScript, _ bool, _ []string) {
					ready(t, ts)
				}, "remember": remember, "replace": replace,
			},
		})
	})
}

// ready waits for the server that the script has started.
func ready(t *testing.T, ts *testscript.TestScript) {
	testbed.Until(inScript{t, ts}, "the server to be ready", func() bool { return ts.Exec("signalbox", "status") == nil })
}

// inScript makes a failure that of a script, which is a test inside of the one that runs all.
type inScript struct {
	testing.TB
	script *testscript.TestScript
}

func (inScript) Helper() {}

func (s inScript) Fatalf(format string, args ...any) { s.script.Fatalf(format, args...) }

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
