// Package engine knows agent CLIs: how each is called, and what the lines mean that it
// writes. A Stream takes the lines of one run and gives events of one model: started,
// action, completed.
//
// It starts no process, reads no clock and stores nothing, so that a stream on standard
// input, a recorded one and a live one are translated alike. What a line is, how memory
// stays flat and how a stream ends is here once; an engine adds a small translator.
//
// Lines come from programs that change every week. A line that is not JSON is passed
// over, a field of the wrong type is as good as absent, an unknown type is nothing, and
// whatever happens there is exactly one completed, and it is last.
package engine
