package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json, as "go doc test2json" has it.
type event struct {
	Action  string `json:"Action"`
	Package string `json:"Package"`
	Test    string `json:"Test"`
	Output  string `json:"Output"`
	// Elapsed is in seconds, without the time that a parallel test waited for its turn.
	Elapsed float64 `json:"Elapsed"`
}

// slowest is how many tests are named at the end with their times: where to look when the
// suite grows past what people wait for.
const slowest = 10

// report turns events into lines for people, and counts. It is used by one goroutine.
// Output of a test is kept until the test ends, since only that of failed tests is
// printed.
type report struct {
	out     io.Writer
	now     func() time.Time
	begun   time.Time
	printed time.Time // when the last line was

	packages         map[string]*progress // those that have begun and not ended
	ended            int
	passed, skipped  int
	failed, noResult []string // tests that failed, and packages that failed without one
	slow             []event  // ends of the slowest tests, the slowest first
}

// progress is what is known of a package that is running. Its memory is freed when the
// package ends.
type progress struct {
	begun   time.Time
	output  map[string]string // by test, "" for that of the package itself
	order   []string          // the tests that have not ended, in the order of their first line
	failing bool              // a test of it has failed
}

// newReport begins a report. now is a parameter so that tests of the report need no
// waiting.
func newReport(out io.Writer, now func() time.Time) *report {
	r := &report{out: out, now: now, begun: now(), packages: map[string]*progress{}}
	r.print("building the tests ...\n")
	return r
}

// print writes, and notes when, so that follow can tell how long it has been quiet.
func (r *report) print(format string, args ...any) {
	_, _ = fmt.Fprintf(r.out, format, args...)
	r.printed = r.now()
}

// add takes one event. Events of several packages are mixed, as they run in parallel.
func (r *report) add(e event) {
	if e.Action == "build-output" {
		r.print("%s", e.Output)
		return
	}
	if e.Package == "" {
		return
	}
	p := r.packages[e.Package]
	if p == nil {
		p = &progress{begun: r.now(), output: map[string]string{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		if _, known := p.output[e.Test]; !known {
			p.order = append(p.order, e.Test)
		}
		p.output[e.Test] += e.Output
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.endPackage(e, p)
		} else {
			r.endTest(e, p)
		}
	}
}

// endTest counts a test and prints the output of a failed one. Subtests have events of
// their own, so a parent that fails because of one has little left to print.
func (r *report) endTest(e event, p *progress) {
	switch e.Action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
	case "fail":
		p.failing = true
		r.failed = append(r.failed, short(e.Package)+" "+e.Test)
		r.print("%s", p.output[e.Test])
	}
	if !strings.Contains(e.Test, "/") { // a test's time contains that of its subtests
		r.slow = append(r.slow, e)
		slices.SortStableFunc(r.slow, func(a, b event) int { return cmp.Compare(b.Elapsed, a.Elapsed) })
		r.slow = r.slow[:min(slowest, len(r.slow))]
	}
	delete(p.output, e.Test)
	p.order = slices.DeleteFunc(p.order, func(name string) bool { return name == e.Test })
}

// endPackage prints the line of a package. If it failed, the output of tests that never
// ended comes first: one of them ended the process, by a panic, an exit or the timeout.
func (r *report) endPackage(e event, p *progress) {
	delete(r.packages, e.Package)
	last := p.output[""]
	if e.Action != "fail" {
		if e.Action == "pass" && !strings.Contains(last, "[no test files]") {
			r.ended++
			r.print("%s", lastLine(last))
		}
		return
	}
	r.ended++
	for _, name := range p.order {
		if name != "" {
			r.print("%s", p.output[name])
		}
	}
	if !p.failing {
		r.noResult = append(r.noResult, short(e.Package))
	}
	r.print("%s", last)
}

// lastLine is the last line of a package's output, with which go test sums it up (ok, time,
// coverage). Everything before it was printed by the tests.
func lastLine(text string) string {
	lines := strings.SplitAfter(strings.TrimRight(text, "\n"), "\n")
	return lines[len(lines)-1] + "\n"
}

// short is the path of a package without the module's name, which is the same for all.
func short(name string) string {
	_, rest, ok := strings.Cut(name, "/")
	if !ok {
		return name
	}
	return rest
}

// sayWhatRuns names the packages that are running and for how long: the one that hangs
// is then known.
func (r *report) sayWhatRuns() {
	var names []string
	for name, p := range r.packages {
		names = append(names, fmt.Sprintf("%s (%v)", short(name), r.now().Sub(p.begun).Round(time.Second)))
	}
	slices.Sort(names)
	what := "running " + strings.Join(names, ", ")
	if len(names) == 0 {
		what = "building"
	}
	r.print("... %v: %s\n", r.now().Sub(r.begun).Round(time.Second), what)
}

// end prints the slowest tests, the totals, and once more the names of all failures: their
// output may be thousands of lines above.
func (r *report) end() {
	for _, e := range r.slow {
		if e.Elapsed >= 1 {
			r.print("%6.1fs %s %s\n", e.Elapsed, short(e.Package), e.Test)
		}
	}
	r.print("%d packages, %d tests passed, %d skipped, %d failed, in %v\n",
		r.ended, r.passed, r.skipped, len(r.failed), r.now().Sub(r.begun).Round(time.Second))
	for _, name := range append(r.noResult, r.failed...) {
		r.print("FAILED %s\n", name)
	}
}
