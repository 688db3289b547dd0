package harness

import (
	"math"
	"slices"
	"strings"
	"unicode"
)

// maxWord is the longest word that is looked up, in bytes.
const maxWord = 64

// wordsOf are the words of a text: letters and digits in lower case. A name made of
// several, such as parseFrame or max_depth, counts as itself and as its parts.
func wordsOf(text string) []string {
	var words []string
	add := func(runes []rune) {
		if w := strings.ToLower(string(runes)); w != "" && len(w) <= maxWord {
			words = append(words, w)
		}
	}
	for name := range strings.FieldsFuncSeq(text, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
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
var common = strings.Fields("a an and are as at be by do does for from how i in is it me my of on or that the this to was we what when where which who why will with you")

// asked are the words to look for in a question: all of them, if all are common.
func asked(question string) []string {
	all := wordsOf(question)
	slices.Sort(all)
	all = slices.Compact(all)
	rare := slices.DeleteFunc(slices.Clone(all), func(w string) bool { return slices.Contains(common, w) })
	if len(rare) == 0 {
		rare = all
	}
	return rare[:min(len(rare), maxAsked)]
}

// maxAsked is how many words of a question are looked for.
const maxAsked = 64

// The constants of BM25, as most have them.
const (
	saturation = 1.2
	byLength   = 0.75
)

// relevance is what one word adds to a text's score (BM25): the rarer the word among
// texts and the more often it stands in this one, the more.
func relevance(times, length int64, average float64, texts, having int64) float64 {
	rarity := math.Log(1 + (float64(texts)-float64(having)+0.5)/(float64(having)+0.5))
	often := float64(times)
	return rarity * often * (saturation + 1) / (often + saturation*(1-byLength+byLength*float64(length)/max(average, 1)))
}
