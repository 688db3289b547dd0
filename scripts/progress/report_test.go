package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPackagesAndFailuresArePrintedAsTheyCome(t *testing.T) {
	at := time.Unix(0, 0)
	var out strings.Builder
	r := newReport(&out, func() time.Time { return at })
	say := func(action, pkg, test, output string) {
		r.add(event{Action: action, Package: pkg, Test: test, Output: output})
	}
	// ends is the end of a test, or of a package when test is "", and what it printed before.
	ends := func(action, pkg, test string, printed ...string) {
		for _, line := range printed {
			say("output", pkg, test, line+"\n")
		}
		say(action, pkg, test, "")
	}
	r.sayWhatRuns()
	say("start", "m/slow", "", "")
	say("start", "m/fast", "", "")
	say("output", "m/fast", "TestA", "=== RUN   TestA\n")
	say("output", "m/fast", "TestB", "=== RUN   TestB\n")
	say("output", "m/fast", "TestB", "    b_test.go:1: wrong\n")
	r.add(event{Action: "pass", Package: "m/fast", Test: "TestA", Elapsed: 2.5})
	ends("fail", "m/fast", "TestB")
	ends("fail", "m/fast", "", "FAIL\tm/fast\t1.0s")
	at = at.Add(20 * time.Second)
	r.sayWhatRuns()
	say("output", "m/slow", "TestC", "panic: oh\n")
	ends("fail", "m/slow", "", "FAIL\tm/slow\t20s")
	ends("pass", "m/good", "", "PASS", "ok  \tm/good\t0.1s")
	ends("skip", "m/none", "", "?   \tm/none\t[no test files]")
	r.end()
	want := `building the tests ...
... 0s: building
=== RUN   TestB
    b_test.go:1: wrong
FAIL	m/fast	1.0s
... 20s: running slow (20s)
panic: oh
FAIL	m/slow	20s
ok  	m/good	0.1s
   2.5s fast TestA
3 packages, 1 tests passed, 0 skipped, 1 failed, in 20s
FAILED slow
FAILED fast TestB
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
