package web

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestADifferenceHasBothSides: rows show the lines that stand at their numbers, and taking
// the old lines away and putting the new ones in their place makes the one text the other.
func TestADifferenceHasBothSides(t *testing.T) {
	text := rapid.StringOfN(rapid.SampledFrom([]rune("ab-+@\\ \n\n\n\n")), 0, 40, -1)
	lines := func(text string) (all []string) {
		for line := range strings.Lines(text) {
			all = append(all, strings.TrimSuffix(line, "\n"))
		}
		return all
	}
	rapid.Check(t, func(t *rapid.T) {
		old, fresh := text.Draw(t, "old"), text.Draw(t, "fresh")
		before, after := lines(old), lines(fresh)
		var made []string
		at := 0 // lines of before that have been dealt with
		for _, row := range compare([]byte(old), []byte(fresh)).Rows {
			if row.Kind == "hunk" {
				continue
			}
			for row.OldNo == 0 && len(made) < row.NewNo-1 || row.OldNo > 0 && at < row.OldNo-1 { // not shown: the same
				made, at = append(made, before[at]), at+1
			}
			if row.OldNo > 0 {
				if row.Old != before[row.OldNo-1] {
					t.Fatalf("line %d is %q, and the row says %q", row.OldNo, before[row.OldNo-1], row.Old)
				}
				at++
			}
			if row.NewNo > 0 {
				if made = append(made, row.New); len(made) != row.NewNo {
					t.Fatalf("%q is line %d, and the row says %d", row.New, len(made), row.NewNo)
				}
			}
		}
		if made = append(made, before[at:]...); !slices.Equal(made, after) {
			t.Fatalf("the lines are %q, and the rows make %q", after, made)
		}
	})
}

func TestADifferenceShowsAFewLinesAround(t *testing.T) {
	got := compare([]byte("1\n2\n3\n4\n5\n6\n7\n8\n9\n"), []byte("1\n2\n3\n4\nfive\n6\n7\n8\n9"))
	want := difference{Rows: []diffRow{
		{Kind: "hunk", Text: "@@ -2,7 +2,7 @@"},
		{Kind: "same", Old: "2", New: "2", OldNo: 2, NewNo: 2},
		{Kind: "same", Old: "3", New: "3", OldNo: 3, NewNo: 3},
		{Kind: "same", Old: "4", New: "4", OldNo: 4, NewNo: 4},
		{Kind: "change", Old: "5", New: "five", OldNo: 5, NewNo: 5},
		{Kind: "same", Old: "6", New: "6", OldNo: 6, NewNo: 6},
		{Kind: "same", Old: "7", New: "7", OldNo: 7, NewNo: 7},
		{Kind: "same", Old: "8", New: "8", OldNo: 8, NewNo: 8},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(difference{}, compare([]byte("same\n"), []byte("same"))); diff != "" {
		t.Errorf("nothing changed: %s", diff)
	}
}

func TestADifferenceHasLimits(t *testing.T) {
	many := strings.Repeat("\n", maxLines)
	for name, c := range map[string]struct {
		before, after string
		tooLong, cut  bool
		rows          int
	}{
		"as many lines as may be": {before: many, after: "a\n" + many[1:], rows: 5},
		"a line too many":         {before: many, after: many + "\n", tooLong: true},
		"as many bytes as may be": {
			before: strings.Repeat("a", maxCompared),
			after:  strings.Repeat("a", maxCompared) + "\n",
		},
		"a byte too many":            {before: strings.Repeat("a", maxCompared+1), after: "b", tooLong: true},
		"more lines than are shown":  {before: "", after: strings.Repeat("a\n", maxShown), cut: true, rows: maxShown},
		"wider lines than are shown": {before: "a", after: strings.Repeat("ä", maxWidth), cut: true, rows: 2},
		"two empty texts":            {},
	} {
		t.Run(name, func(t *testing.T) {
			got := compare([]byte(c.before), []byte(c.after))
			if got.TooLong != c.tooLong || got.Cut != c.cut || len(got.Rows) != c.rows {
				t.Errorf("too long %v, cut %v, %d rows; want %v, %v, %d", got.TooLong, got.Cut, len(got.Rows), c.tooLong, c.cut,
					c.rows)
			}
		})
	}
}

// BenchmarkCompare compares policies that are as large as they may be. The budget is a
// second and 100 MB for any of them; B/op counts all that was ever allocated.
func BenchmarkCompare(b *testing.B) {
	fill := func(line func(i int) string) []byte {
		var out []byte
		for i := 0; i < maxLines/2 || len(out) < maxCompared && i < maxLines; i++ {
			out = append(out, line(i)...)
		}
		return out[:min(len(out), maxCompared)]
	}
	rules := func(then func(i int) string) []byte {
		return fill(func(i int) string {
			return []string{
				fmt.Sprintf("  - name: rule-%d\n", i/4), "    on: [signal]\n",
				fmt.Sprintf("    when: event.tool == %q\n", fmt.Sprint(i/4)), "    then: " + then(i) + "\n",
			}[i%4]
		})
	}
	number := func(format string, step, start int) []byte {
		return fill(func(i int) string { return fmt.Sprintf(format, start+step*i) })
	}
	for _, c := range []struct {
		name          string
		before, after []byte
	}{
		{"every_tenth_rule", rules(func(int) string {
			return "block"
		}), rules(func(i int) string { return []string{"block", "gate"}[i/4%10/9] })},
		{"all_lines_differ", number("%09d\n", 1, 0), number("%09d\n", 1, maxLines)},
		{"lines_reversed", number("%09d\n", 1, 0), number("%09d\n", -1, maxLines-1)},
		{"repeated_lines", fill(func(i int) string {
			return fmt.Sprintf("%d\n", i%10)
		}), fill(func(i int) string { return fmt.Sprintf("%d\n", i%7) })},
		{"one_long_line", fill(func(int) string {
			return strings.Repeat("a", 50)
		}), fill(func(int) string { return strings.Repeat("b", 50) })},
		{"empty_lines", fill(func(int) string { return "\n" }), fill(func(int) string { return " \n" })},
		{"1_MiB_of_newlines", []byte(strings.Repeat("\n", maxCompared)), []byte(strings.Repeat(" \n", maxCompared/2))},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				compare(c.before, c.after)
			}
		})
	}
}
