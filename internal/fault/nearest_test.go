package fault_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/fault"
)

func TestTheNearestWordIsTheOneThatWasMeant(t *testing.T) {
	fields := []string{"summary", "proposed_action", "priority", "payload"}
	for _, c := range []struct {
		name  string
		typed string
		known []string
		want  string
	}{
		{"a letter too few", "sumary", fields, "summary"},
		{"a letter too many", "prioritty", fields, "priority"},
		{"another letter", "paiload", fields, "payload"},
		{"two neighbours swapped count as one mistake", "id", []string{"di"}, "di"},
		{"two neighbours swapped in a longer word", "prioirty", fields, "priority"},
		{"another case", "Summary", fields, "summary"},
		{"another separator", "proposed-action", fields, "proposed_action"},
		{"the word itself", "payload", fields, "payload"},
		{"the nearer of two wins", "namer", []string{"game", "name"}, "name"},
		{"the first of two that are as near wins", "nam", []string{"name", "namf"}, "name"},
		{"nothing alike", "colour", fields, ""},
		{"a short word is not turned into any other short word", "x", []string{"id", "at"}, ""},
		{"nothing typed", "", fields, ""},
		{"nothing known", "summary", nil, ""},
		{"letters outside of ASCII", "größe", []string{"grösse", "farbe"}, "grösse"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, fault.Nearest(c.typed, c.known)); diff != "" {
				t.Errorf("Nearest(%q) (-want +got):\n%s", c.typed, diff)
			}
		})
	}
}

func TestDidYouMeanNamesTheNearestOrAllOrNone(t *testing.T) {
	for _, c := range []struct {
		name  string
		typed string
		known []string
		want  string
	}{
		{"near", "sumary", []string{"summary", "payload"}, `Did you mean "summary"?`},
		{"far", "colour", []string{"summary", "payload"}, "Choose one of: summary, payload."},
		{"none", "colour", nil, "None are accepted here."},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, fault.DidYouMean(c.typed, c.known)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAHugeWordIsComparedWithNothing(t *testing.T) {
	typed, known := strings.Repeat("a", 8<<20), make([]string, 50)
	for i := range known {
		known[i] = strings.Repeat("b", 40)
	}
	begun := time.Now()
	if got := fault.Nearest(typed, known); got != "" {
		t.Errorf("got %q", got)
	}
	// Comparing letter by letter would take minutes.
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("took %s", d)
	}
}
