package web

import (
	"bytes"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// The limits of compare. The library needs up to 300 bytes for a line, however short, so lines are
// what costs memory. A policy has at most 1 MiB; 100,000 lines of it would have ten bytes each.
// BenchmarkCompare measures the worst cases.
const (
	maxCompared = 1 << 20 // bytes on one side
	maxLines    = 100_000 // on one side
	maxShown    = 5_000   // lines of the difference that a page has
	maxWidth    = 4 << 10 // bytes of a line that a page has
)

// difference is how two texts differ, for a page. Rows is empty if they do not.
type difference struct {
	Rows    []diffRow
	TooLong bool // the texts are past the limits of compare and were not compared
	Cut     bool // Rows is only the beginning
}

// compare finds the lines that differ, with three lines around each change. A missing newline at
// the end is not a difference.
func compare(before, after []byte) difference {
	before, after = endWithNewline(before), endWithNewline(after)
	for _, side := range [][]byte{before, after} {
		if len(side) > maxCompared+1 || bytes.Count(side, newline) > maxLines {
			return difference{TooLong: true}
		}
	}
	text := diff.Diff("before", before, "after", after)
	// The first lines name two files that do not exist.
	if at := bytes.Index(text, []byte("\n@@ ")); at >= 0 {
		text = text[at+1:] // without the names of files
	}
	shown, cut := firstLines(text)
	return difference{Rows: sideBySide(shown), Cut: cut}
}

var newline = []byte("\n")

// endWithNewline is the text with a newline after its last line. It never writes into text.
func endWithNewline(text []byte) []byte {
	if len(text) == 0 {
		return nil
	}
	return append(bytes.TrimSuffix(text[:len(text):len(text)], newline), '\n')
}

// firstLines is the part of a difference that fits on a page, and whether that is not all.
func firstLines(text []byte) (shown string, cut bool) {
	var out strings.Builder
	left := maxShown
	for line := range bytes.Lines(text) {
		if left == 0 {
			return out.String(), true
		}
		left--
		if len(line) > maxWidth {
			line, cut = append(bytes.ToValidUTF8(line[:maxWidth], nil), "…\n"...), true
		}
		out.Write(line)
	}
	return out.String(), cut
}
