package web

import (
	"regexp"
	"strconv"
	"strings"
)

// diffRow is a line of a difference, as it was and as it is. A negative number stands for a line
// whose number is not known.
type diffRow struct {
	Kind         string // "file", "hunk", "same" or "change"
	Text         string // of a file or a hunk
	Old, New     string
	OldNo, NewNo int // 0 where there is no line on that side
}

// hunkForm is the head of a hunk, with the line numbers on both sides.
var hunkForm = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@`)

// sideBySide reads a unified difference into rows with both sides. Removed lines are put beside
// the lines that replaced them. The text is an agent's and may be anything: nothing is left out,
// whatever its form.
func sideBySide(text string) []diffRow {
	d := differ{}
	for line := range strings.Lines(text) {
		d.addLine(strings.TrimSuffix(line, "\n"))
	}
	d.flush()
	return d.rows
}

// differ is a difference being read. removed and added are the lines of the current change that
// are not yet paired.
type differ struct {
	rows         []diffRow
	removed      []string
	added        []string
	oldNo, newNo int // of the next line
	inHunk       bool
}

// addLine takes one line. Outside of hunks there are only file headers and loose lines.
func (d *differ) addLine(line string) {
	if at := hunkForm.FindStringSubmatch(line); at != nil {
		d.flush()
		d.oldNo, _ = strconv.Atoi(at[1])
		d.newNo, _ = strconv.Atoi(at[2])
		d.inHunk = true
		d.rows = append(d.rows, diffRow{Kind: "hunk", Text: line})
		return
	}
	// Inside a hunk a line may begin with "--- " and be a removed line, so heads are only looked for
	// outside.
	isHead := strings.HasPrefix(line, "diff ") || strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "+++ ") ||
		strings.HasPrefix(line, "index ")
	switch {
	case !d.inHunk || strings.HasPrefix(line, "diff "):
		d.flush()
		d.inHunk = d.inHunk && !isHead
		if isHead {
			d.rows = append(d.rows, diffRow{Kind: "file", Text: line})
		} else {
			d.loose(line)
		}
	// A removal after an addition begins a new change.
	case strings.HasPrefix(line, "-"):
		if len(d.added) > 0 {
			d.flush()
		}
		d.removed = append(d.removed, line[1:])
	case strings.HasPrefix(line, "+"):
		d.added = append(d.added, line[1:])
	case strings.HasPrefix(line, `\`): // "\ No newline at end of file" is no line of either side
		d.flush()
		d.rows = append(d.rows, diffRow{Kind: "hunk", Text: line})
	default:
		d.flush()
		d.same(strings.TrimPrefix(line, " "))
	}
}

// loose takes a line of a difference that has no hunks, and so no line numbers.
func (d *differ) loose(line string) {
	switch {
	case strings.HasPrefix(line, "-"):
		d.rows = append(d.rows, diffRow{Kind: "change", Old: line[1:], OldNo: -1})
	case strings.HasPrefix(line, "+"):
		d.rows = append(d.rows, diffRow{Kind: "change", New: line[1:], NewNo: -1})
	default:
		d.rows = append(d.rows, diffRow{Kind: "same", Old: line, New: line, OldNo: -1, NewNo: -1})
	}
}

// same adds a line that is on both sides.
func (d *differ) same(line string) {
	d.rows = append(d.rows, diffRow{Kind: "same", Old: line, New: line, OldNo: d.oldNo, NewNo: d.newNo})
	d.oldNo++
	d.newNo++
}

// flush pairs removed lines with added ones, one by one, as far as they go.
func (d *differ) flush() {
	for i := range max(len(d.removed), len(d.added)) {
		row := diffRow{Kind: "change"}
		if i < len(d.removed) {
			row.Old, row.OldNo = d.removed[i], d.oldNo
			d.oldNo++
		}
		if i < len(d.added) {
			row.New, row.NewNo = d.added[i], d.newNo
			d.newNo++
		}
		d.rows = append(d.rows, row)
	}
	d.removed, d.added = nil, nil
}
