package document

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/fault"
)

// Problem is one thing that is wrong with a document. Lines and columns
// count from 1, columns in characters.
type Problem struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what was meant, or what a right value looks like
}

// String is the problem as a compiler prints it.
func (p Problem) String() string {
	return strings.TrimSpace(fmt.Sprintf("line %d, column %d: %s %s", p.Line, p.Column, p.Message, p.Hint))
}

// maxProblems is how many are reported; a file that is not a policy at all has
// thousands.
const maxProblems = 50

// Position is a place in the source, counted from 1 as in Problem.
type Position struct{ Line, Column int }

// Add notes a problem. The message says what is wrong; the hint says what to write instead.
func (r *Reader) Add(at Position, hint, format string, args ...any) {
	r.problems = append(r.problems, Problem{at.Line, at.Column, fmt.Sprintf(format, args...), hint})
}

// Found is how many problems were noted so far.
func (r *Reader) Found() int { return len(r.problems) }

// Fault is the error with all problems, in the order of the source, nil if there are none. Its
// message is the first problem; the details have up to fifty.
func (r *Reader) Fault() error {
	list := r.problems
	if len(list) == 0 {
		return nil
	}
	slices.SortStableFunc(list, func(a, b Problem) int {
		return cmp.Or(a.Line-b.Line, a.Column-b.Column, strings.Compare(a.Message, b.Message))
	})
	first := list[0].String()
	message := strings.ToUpper(first[:1]) + first[1:]
	if len(list) > 1 {
		message += fmt.Sprintf(" (And %d more, in details.problems.)", len(list)-1)
	}
	return fault.New(fault.InvalidPolicy, "%s", message).With("problems", list[:min(len(list), maxProblems)])
}

// Problems lists what is wrong, from the error of Fault.
func Problems(err error) []Problem {
	list, _ := fault.From(err).Details["problems"].([]Problem)
	return list
}
