package knowledge

import (
	"slices"
	"strings"
	"unicode"
)

// maxWord is the longest word that is looked up, in bytes.
const maxWord = 64

// Words are the words of a text: letters and digits in lower case. A name made of
// several, such as parseFrame or max_depth, counts as itself and as its parts.
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

// Keywords are the words to look for in a question: all of them, if all are common.
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

// maxKeywords is how many words of a question are looked for.
const maxKeywords = 64

// CountIn is how many of the words are in a text.
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
