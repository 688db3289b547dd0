package web

import (
	"fmt"
	"strings"
)

// unified is the difference between two texts, line by line, with a few lines around each
// change.
func unified(before, after string) string {
	a, b := strings.Split(strings.TrimSuffix(before, "\n"), "\n"), strings.Split(strings.TrimSuffix(after, "\n"), "\n")
	edits := compare(a, b)
	var out strings.Builder
	for i := 0; i < len(edits); {
		if edits[i].mark == ' ' {
			i++
			continue
		}
		begin, end := max(0, i-around), i
		for same := 0; end < len(edits) && same <= 2*around; end++ {
			if edits[end].mark == ' ' {
				same++
			} else {
				same = 0
			}
		}
		_, _ = fmt.Fprintf(&out, "@@ -%d +%d @@\n", edits[begin].old+1, edits[begin].new+1)
		for _, e := range edits[begin:end] {
			_, _ = fmt.Fprintf(&out, "%c%s\n", e.mark, e.text)
		}
		i = end
	}
	return out.String()
}

// around is how many lines that stayed are shown beside those that did not.
const around = 3

// edit is a line that stayed (' '), went ('-') or came ('+').
type edit struct {
	mark     rune
	text     string
	old, new int // the places of the next line on each side
}

// compare finds the fewest edits between two lists of lines. What the lists have in common
// at their ends is left out of the table, which would else be large for nothing.
func compare(a, b []string) (edits []edit) {
	head, tail := 0, 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	x, y := a[head:len(a)-tail], b[head:len(b)-tail]
	longest := make([][]int32, len(x)+1) // common lines from here on
	for i := range longest {
		longest[i] = make([]int32, len(y)+1)
	}
	for i := len(x) - 1; i >= 0; i-- {
		for j := len(y) - 1; j >= 0; j-- {
			if x[i] == y[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	for i := range head {
		edits = append(edits, edit{' ', a[i], i, i})
	}
	i, j := 0, 0
	for i < len(x) || j < len(y) {
		switch at := [2]int{head + i, head + j}; {
		case i < len(x) && j < len(y) && x[i] == y[j]:
			edits = append(edits, edit{' ', x[i], at[0], at[1]})
			i, j = i+1, j+1
		case i < len(x) && (j == len(y) || longest[i+1][j] >= longest[i][j+1]):
			edits = append(edits, edit{'-', x[i], at[0], at[1]})
			i++
		default:
			edits = append(edits, edit{'+', y[j], at[0], at[1]})
			j++
		}
	}
	for n := range tail {
		edits = append(edits, edit{' ', a[len(a)-tail+n], len(a) - tail + n, len(b) - tail + n})
	}
	return edits
}
