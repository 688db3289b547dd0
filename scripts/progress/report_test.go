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
	r.sayWhatRuns()
	say("start", "m/slow", "", "")
	say("start", "m/fast", "", "")
	say("output", "m/fast", "TestA", "=== RUN   TestA\n")
	say("output", "m/fast", "TestB", "=== RUN   TestB\n")
	say("output", "m/fast", "TestB", "    b_test.go:1: wrong\n")
	say("pass", "m/fast", "TestA", "")
	say("fail", "m/fast", "TestB", "")
	say("output", "m/fast", "", "FAIL\tm/fast\t1.0s\n")
	say("fail", "m/fast", "", "")
	at = at.Add(20 * time.Second)
	r.sayWhatRuns()
	say("output", "m/slow", "TestC", "panic: oh\n")
	say("output", "m/slow", "", "FAIL\tm/slow\t20s\n")
	say("fail", "m/slow", "", "")
	say("output", "m/good", "", "PASS\n")
	say("output", "m/good", "", "ok  \tm/good\t0.1s\n")
	say("pass", "m/good", "", "")
	say("output", "m/none", "", "?   \tm/none\t[no test files]\n")
	say("skip", "m/none", "", "")
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
3 packages, 1 tests passed, 0 skipped, 1 failed, in 20s
FAILED slow
FAILED fast TestB
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
