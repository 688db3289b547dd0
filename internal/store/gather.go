package store

import (
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Many inserts into one table cost less in one statement than one by one: half of the
// time on PostgreSQL, two thirds on SQLite.

// chunks are how many rows one statement inserts: a few sizes, so that the prepared
// statements are few.
var chunks = []int{64, 16, 4}

// insertForm matches an insert of one row that has nothing after it.
var insertForm = regexp.MustCompile(`^\s*(INSERT INTO \w+ \([\w, ]+\)\s+VALUES\s*)(\([^()]*\))\s*$`)

var placeholder = regexp.MustCompile(`\$(\d+)`)

// inserts remembers the forms of statements: there are as many as in the source.
type inserts struct{ byText sync.Map }

// insert is a statement that inserts one row, nil for any other.
type insert struct {
	texts map[int]string // the statement for each size of a chunk
}

func (f *inserts) of(st statement) *insert {
	if known, ok := f.byText.Load(st.text); ok {
		return known.(*insert)
	}
	var form *insert
	if m := insertForm.FindStringSubmatch(st.text); m != nil {
		form = &insert{texts: map[int]string{}}
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

// gather puts inserts into the same table together. Those into different tables change
// places, which makes no difference: nothing but inserts stands between them.
func (f *inserts) gather(queue []statement) []statement {
	if len(queue) < chunks[len(chunks)-1] {
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
		if f.of(st) == nil {
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

func (f *inserts) emit(out, group []statement) []statement {
	form := f.of(group[0])
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
