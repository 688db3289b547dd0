package store

import (
	"database/sql/driver"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Many inserts into one table cost less in one statement than one by one: at most half
// of the time on PostgreSQL, two thirds on SQLite.

// chunks are how many rows one statement inserts: a few sizes, so that the prepared
// statements are few.
var chunks = []int{64, 16, 4}

// few is the number of rows below which gathering is not worth its cost.
const few = 4

// insertForm matches an insert of one row that has nothing after it.
var insertForm = regexp.MustCompile(`^\s*(INSERT INTO \w+ \([\w, ]+\)\s+VALUES\s*)(\([^()]*\))\s*$`)

// placeholder matches $1, $2 and so on. No statement has one inside of a text.
var placeholder = regexp.MustCompile(`\$(\d+)`)

// inserts remembers the forms of statements: there are as many as in the source.
type inserts struct {
	byText sync.Map
	lists  bool // columns are sent as lists
}

// insert is a statement that inserts one row, nil for any other.
type insert struct {
	head, row string         // INSERT INTO … VALUES, and ($1, …)
	texts     map[int]string // the statement for each size of a chunk
}

// formOf is the form of a statement, nil if it is not a plain insert of one row.
func (f *inserts) formOf(st statement) *insert {
	if known, ok := f.byText.Load(st.text); ok {
		return known.(*insert)
	}
	var form *insert
	if m := insertForm.FindStringSubmatch(st.text); m != nil {
		form = &insert{head: m[1], row: m[2], texts: map[int]string{}}
		for _, size := range chunks {
			form.texts[size] = m[1] + repeat(m[2], len(st.args), size)
		}
	}
	f.byText.Store(st.text, form)
	return form
}

// repeat writes a row of n arguments size times, with the numbers moved on.
func repeat(row string, n, size int) string {
	rows := make([]string, size)
	for i := range rows {
		rows[i] = placeholder.ReplaceAllStringFunc(row, func(mark string) string {
			number, _ := strconv.Atoi(mark[1:])
			return "$" + strconv.Itoa(i*n+number)
		})
	}
	return strings.Join(rows, ", ")
}

// gather combines inserts into the same table. Inserts into different tables may change
// their order, which makes no difference: no table refers to another by a foreign key, and
// any other statement is a barrier that inserts do not pass.
func (f *inserts) gather(queue []statement) []statement {
	if len(queue) < few {
		return queue
	}
	out := make([]statement, 0, len(queue))
	var order []string // of texts, by first use
	groups := map[string][]statement{}
	emit := func() {
		for _, text := range order {
			out = f.emit(out, groups[text])
		}
		order = order[:0]
		clear(groups)
	}
	for _, st := range queue {
		if f.formOf(st) == nil {
			emit()
			out = append(out, st)
			continue
		}
		if groups[st.text] == nil {
			order = append(order, st.text)
		}
		groups[st.text] = append(groups[st.text], st)
	}
	emit()
	return out
}

// emit appends a group of inserts with the same text: on PostgreSQL as lists of columns, else
// in chunks of the fixed sizes, and the rest one by one.
func (f *inserts) emit(out, group []statement) []statement {
	form := f.formOf(group[0])
	if f.lists && len(group) >= few {
		if st, ok := form.listed(group); ok {
			return append(out, st)
		}
	}
	for _, size := range chunks {
		for ; len(group) >= size; group = group[size:] {
			args := make([]any, 0, size*len(group[0].args))
			for _, st := range group[:size] {
				args = append(args, st.args...)
			}
			out = append(out, statement{form.texts[size], args})
		}
	}
	return append(out, group...)
}

// listed is a group as one statement with a list for each column, which PostgreSQL unnests.
// It plans an expression for every parameter of VALUES, which costs more than the row. A
// group in which a column has different types, or a null, cannot be listed.
func (i *insert) listed(group []statement) (statement, bool) {
	columns := len(group[0].args)
	lists, types, names := make([]any, columns), make([]string, columns), make([]string, columns)
	for c := range columns {
		if lists[c], types[c] = list(group, c); lists[c] == nil {
			return statement{}, false
		}
		types[c] = "$" + strconv.Itoa(c+1) + "::" + types[c] + "[]"
		names[c] = "c" + strconv.Itoa(c+1)
	}
	head, _, _ := strings.Cut(i.head, "VALUES")
	row := placeholder.ReplaceAllString(strings.Trim(i.row, "()"), "c$1")
	return statement{head + "SELECT " + row + " FROM unnest(" + strings.Join(types, ", ") + ") AS rows (" +
		strings.Join(names, ", ") + ")", lists}, true
}

// list is the values of a column with the name of their type, nil if they have several.
func list(group []statement, column int) (values any, kind string) {
	switch plain(group[0].args[column]).(type) {
	case int64:
		return listOf[int64](group, column), "bigint"
	case string:
		return listOf[string](group, column), "text"
	case []byte:
		return listOf[[]byte](group, column), "bytea"
	case bool:
		return listOf[bool](group, column), "boolean"
	}
	return nil, ""
}

// listOf collects a column, nil if a value is of another type.
func listOf[T any](group []statement, column int) any {
	values := make([]T, len(group))
	for i, st := range group {
		value, ok := plain(st.args[column]).(T)
		if !ok {
			return nil
		}
		values[i] = value
	}
	return values
}

// plain converts an argument to one of the few types that both databases know, and to
// anything else, which has no list type, if it cannot be converted.
func plain(arg any) any {
	switch arg.(type) {
	case int64, string, []byte, bool:
		return arg
	}
	value, _ := driver.DefaultParameterConverter.ConvertValue(arg) // what cannot be one has no type
	return value
}
