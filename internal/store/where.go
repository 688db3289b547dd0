package store

import (
	"fmt"
	"strconv"
	"strings"
)

// Where collects the conditions of a query with their values, so that no caller counts
// placeholders by hand. Conditions are text of the program; what comes from a caller goes
// in as a value. The zero value has no condition.
type Where struct {
	conditions []string
	args       []any
}

// Mark adds a value and returns the placeholder that stands for it, such as $3.
func (w *Where) Mark(value any) string {
	w.args = append(w.args, value)
	return "$" + strconv.Itoa(len(w.args))
}

// And adds a condition. Each %s in it stands for the next value; a value that is needed
// twice is %[1]s.
func (w *Where) And(condition string, values ...any) {
	if len(values) == 0 {
		w.conditions = append(w.conditions, condition)
		return
	}
	marks := make([]any, len(values))
	for i, v := range values {
		marks[i] = w.Mark(v)
	}
	w.conditions = append(w.conditions, fmt.Sprintf(condition, marks...))
}

// Equal adds a condition on a column, unless the value is "": empty fields of a filter
// select everything.
func (w *Where) Equal(column, value string) {
	if value != "" {
		w.And(column+" = %s", value)
	}
}

// In adds the condition that a column has one of the values. No row meets an empty list.
func (w *Where) In(column string, values []string) {
	w.And(column + " IN (" + w.List(values) + ")")
}

// List adds values and returns their placeholders, such as "$3, $4", and NULL, which is
// equal to nothing, for none.
func (w *Where) List(values []string) string {
	if len(values) == 0 {
		return "NULL"
	}
	for _, v := range values {
		w.args = append(w.args, v)
	}
	return Marks(len(w.args)-len(values)+1, len(values))
}

// String is the conditions with AND between them, and TRUE for none.
func (w *Where) String() string {
	if len(w.conditions) == 0 {
		return "TRUE"
	}
	return strings.Join(w.conditions, " AND ")
}

// Args are the values, in the order of their placeholders. Ask when the text is complete.
func (w *Where) Args() []any { return w.args }

// Marks writes n placeholders from a number on, such as "$2, $3" for 2 and 2.
func Marks(from, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString("$" + strconv.Itoa(from+i))
	}
	return b.String()
}

// RowMarks writes the placeholders of rows for VALUES, such as "($1, $2), ($3, $4)" for two
// rows of two columns.
func RowMarks(rows, columns int) string {
	all := make([]string, rows)
	for i := range all {
		all[i] = "(" + Marks(1+i*columns, columns) + ")"
	}
	return strings.Join(all, ", ")
}
