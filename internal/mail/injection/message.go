package injection

import (
	"slices"
	"strconv"
	"strings"

	"signalbox/internal/wire"
)

// Mark is a category that was found in a message, and where. The place has no word that a sender chose but
// short ones: it is shown beside the message, as the finder's own.
type Mark struct {
	Category string `json:"flag"`
	Place    string `json:"place"` // such as subject, or payload.context.steps[0]
}

// maxMarks bounds the marks of a message. Of a category that has none yet the first is kept in any case.
const maxMarks = 32

// ScanMessage searches every text of a message: its subject, and in the payload every string and the name
// of every member (MSG-49). The same sentence has the same categories wherever it stands.
//
// It has no state and may be called from any goroutine.
func ScanMessage(subject string, payload []byte) []Mark {
	var marks []Mark
	add := func(text string, place func() string) {
		if len(text) < shortestTrick {
			return
		}
		for _, category := range Scan(text) {
			if len(marks) < maxMarks || !slices.ContainsFunc(marks, func(m Mark) bool { return m.Category == category }) {
				marks = append(marks, Mark{category, place()})
			}
		}
	}
	add(subject, func() string { return "subject" })
	err := wire.Texts(payload, func(path []wire.Step, text string, isName bool) {
		add(text, func() string { return placeOf(path, isName) })
	})
	if err != nil { // a payload that cannot be read to its end is searched as it stands
		add(string(payload), func() string { return "payload" })
	}
	return marks
}

// shortestTrick is the length of the shortest text in which Scan finds something, in bytes.
const shortestTrick = 4

// maxSteps bounds a place.
const maxSteps = 8

// placeOf writes the way to a text of the payload. Members with a short plain name are named, others
// numbered in braces, so that a place cannot be made to say something.
func placeOf(path []wire.Step, isName bool) string {
	var b strings.Builder
	b.WriteString("payload")
	for i, step := range path {
		switch last := isName && i == len(path)-1; {
		case i == maxSteps:
			b.WriteString("…")
			return b.String()
		case !last && isPlain(step.Name):
			b.WriteString("." + step.Name)
		case last || step.Name != "":
			b.WriteString("{" + strconv.Itoa(step.Number) + "}")
		default:
			b.WriteString("[" + strconv.Itoa(step.Number) + "]")
		}
	}
	if isName {
		b.WriteString(" (name)")
	}
	return b.String()
}

// isPlain reports whether a name is one short word: letters, digits and at most one underscore.
func isPlain(name string) bool {
	joins := 0
	for i := range len(name) {
		c := name[i]
		switch {
		case c == '_':
			joins++
		case (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z'):
			return false
		}
	}
	return name != "" && len(name) <= 16 && joins <= 1
}

// Categories are the categories of marks, each once, in the order in which they were found; nil for none.
func Categories(marks []Mark) []string {
	var found []string
	for _, m := range marks {
		if !slices.Contains(found, m.Category) {
			found = append(found, m.Category)
		}
	}
	return found
}

// Explain lists marks for people: every category with the places where it stands.
func Explain(marks []Mark) string {
	var all []string
	for _, category := range Categories(marks) {
		var places []string
		for _, m := range marks {
			if m.Category == category {
				places = append(places, m.Place)
			}
		}
		if n := len(places); n > 3 {
			places = append(places[:3], strconv.Itoa(n-3)+" more")
		}
		all = append(all, category+" in "+strings.Join(places, ", "))
	}
	return strings.Join(all, "; ")
}
