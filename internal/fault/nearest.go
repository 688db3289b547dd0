package fault

import "strings"

// Nearest returns the known word that is closest to what was typed, or "" if none is close
// enough to be meant: about one mistake in three letters. Case does not count.
func Nearest(typed string, known []string) string {
	best, bestDistance := "", len(typed)/3+2
	for _, k := range known {
		// The distance is never less than the difference in length, and what was
		// typed may be a megabyte.
		if max(len(typed)-len(k), len(k)-len(typed)) >= bestDistance {
			continue
		}
		if d := distance(strings.ToLower(typed), strings.ToLower(k)); d < bestDistance {
			best, bestDistance = k, d
		}
	}
	return best
}

// DidYouMean is a sentence that names the nearest known word or, failing that, all of them.
func DidYouMean(typed string, known []string) string {
	if n := Nearest(typed, known); n != "" {
		return "Did you mean " + quote(n) + "?"
	}
	if len(known) == 0 {
		return "None are accepted here."
	}
	return "Choose one of: " + strings.Join(known, ", ") + "."
}

// quote does not escape: what is quoted are words of the program.
func quote(s string) string { return `"` + s + `"` }

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a
// into b (Damerau-Levenshtein, restricted). It needs three rows of memory and compares bytes,
// which is good enough for a hint.
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
