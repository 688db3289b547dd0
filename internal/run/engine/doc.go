// Package engine knows agent CLIs: how each is called, and what the lines mean that it
// writes. A Stream takes the lines of one run and emits events of one model: started,
// action, completed. The rules are in docs/protocols/runs.md, and comments cite them,
// such as RUN-11.
//
// It starts no process, reads no clock and stores nothing, so a live stream, a recorded
// one and one on standard input are translated alike. What a line is, how memory stays
// flat and how a stream ends is written once (stream.go, line.go, exit.go); each engine
// adds a small translator.
//
// # Tolerance
//
// Lines come from programs that change every week. A line that is not JSON is skipped,
// a field of the wrong type counts as absent, an unknown type does nothing, and
// whatever happens there is exactly one completed event, and it is last. So values are
// read with type value (json.go), which has no errors, and not into structs, which fail
// as a whole.
//
// # To add an engine
//
// Write a file with a constructor, the arguments and a translator; add it to all;
// record streams of the real CLI as vectors (testdata). Measure what the CLI does; its
// documentation is often a version behind.
package engine
