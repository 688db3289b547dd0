package knowledge

import (
	"slices"
	"strings"
	"unicode"
)

// maxWord is the longest word that is indexed, in bytes. Longer ones are hashes and
// encoded data.
const maxWord = 64

// Words are the words of a text: runs of letters, digits and underscores, in lower
// case. A compound name such as parseFrame or max_depth counts as itself and as its
// parts, so that both "parseFrame" and "frame" find it.
func Words(text string) []string {
	var words []string
	add := func(runes []rune) {
		if w := strings.ToLower(string(runes)); w != "" && len(w) <= maxWord {
			words = append(words, w)
		}
	}
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}) {
		var parts [][]rune
		var part []rune
		runes := []rune(name)
		for i, r := range runes {
			// A capital after a small letter begins a new part; HTTPServer stays one, since nothing
			// tells where HTTP ends.
			turn := i > 0 && unicode.IsUpper(r) && !unicode.IsUpper(runes[i-1])
			if r == '_' || turn {
				parts, part = append(parts, part), nil
			}
			if r != '_' {
				part = append(part, r)
			}
		}
		parts = append(parts, part)
		if len(parts) > 1 {
			add(runes)
		}
		for _, p := range parts {
			add(p)
		}
	}
	return words
}

// common are words that say nothing about what is looked for.
var common = strings.Fields("a an and are as at be by do does for from how i in is it me my of on or that the this " +
	"to was we what when where which who why will with you")

// Keywords are the distinct words to look for in a question: without common ones, or
// all of them if all are common.
func Keywords(question string) []string {
	all := Words(question)
	slices.Sort(all)
	all = slices.Compact(all)
	rare := slices.DeleteFunc(slices.Clone(all), func(w string) bool { return slices.Contains(common, w) })
	if len(rare) == 0 {
		rare = all
	}
	return rare[:min(len(rare), maxKeywords)]
}

// maxKeywords bounds the words of one search, since each is a parameter of the query.
const maxKeywords = 64

// CountIn is how many of the words occur in a text.
func CountIn(words []string, text string) (hits int) {
	have := map[string]bool{}
	for _, w := range Words(text) {
		have[w] = true
	}
	for _, w := range words {
		if have[w] {
			hits++
		}
	}
	return hits
}
