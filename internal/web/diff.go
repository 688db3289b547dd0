package web

import (
	"regexp"
	"strconv"
	"strings"
)

// diffRow is a line of a difference, as it was and as it is.
type diffRow struct {
	Kind         string // "file", "hunk", "same" or "change"
	Text         string // of a file or a hunk
	Old, New     string
	OldNo, NewNo int // 0 where there is no line on that side
}

var hunkForm = regexp.MustCompile(`^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@`)

// sideBySide reads a unified difference into rows with both sides: lines that were taken
// away stand beside those that came in their place.
func sideBySide(text string) []diffRow {
	d := differ{}
	for line := range strings.Lines(text) {
		d.take(strings.TrimRight(line, "\r\n"))
	}
	d.flush()
	return d.rows
}

type differ struct {
	rows         []diffRow
	removed      []string
	added        []string
	oldNo, newNo int // of the next line
	inHunk       bool
}

func (d *differ) take(line string) {
	if at := hunkForm.FindStringSubmatch(line); at != nil {
		d.flush()
		d.oldNo, _ = strconv.Atoi(at[1])
		d.newNo, _ = strconv.Atoi(at[2])
		d.inHunk = true
		d.rows = append(d.rows, diffRow{Kind: "hunk", Text: line})
		return
	}
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

// loose takes a line of a difference that has no hunks.
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

func (d *differ) same(line string) {
	d.rows = append(d.rows, diffRow{Kind: "same", Old: line, New: line, OldNo: d.oldNo, NewNo: d.newNo})
	d.oldNo++
	d.newNo++
}

// flush puts what was taken away beside what came.
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
