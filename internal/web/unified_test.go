package web

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestADifferenceHasBothSides: what stayed and went is the one text, what stayed and came
// the other, and places are right.
func TestADifferenceHasBothSides(t *testing.T) {
	lines := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", ""}), 1, 12)
	rapid.Check(t, func(t *rapid.T) {
		before, after := lines.Draw(t, "before"), lines.Draw(t, "after")
		var old, fresh []string
		for _, e := range compare(before, after) {
			if e.old != len(old) || e.new != len(fresh) {
				t.Fatalf("%q stands at %d and %d, and says %d and %d", e.text, len(old), len(fresh), e.old, e.new)
			}
			if e.mark != '+' {
				old = append(old, e.text)
			}
			if e.mark != '-' {
				fresh = append(fresh, e.text)
			}
		}
		if !slices.Equal(old, before) || !slices.Equal(fresh, after) {
			t.Fatalf("%q and %q came out as %q and %q", before, after, old, fresh)
		}
	})
}

func TestADifferenceShowsAFewLinesAround(t *testing.T) {
	got := unified("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nfive\n6\n7\n8\n9\n")
	if diff := cmp.Diff("@@ -2 +2 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n 9\n", got); diff != "" {
		t.Error(diff)
	}
	if got := unified("same\n", "same\n"); got != "" {
		t.Errorf("nothing changed, and it says %q", got)
	}
}
