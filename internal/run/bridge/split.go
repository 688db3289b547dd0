package bridge

import (
	"strings"

	"signalbox/internal/notify/telegram"
)

// split cuts a text into parts of at most so much, by telegram.PostSize: between paragraphs where it can, else between
// lines, else between words, else between characters. But for the white space where it was cut, nothing is lost.
func split(text string, most int) (parts []string) {
	for {
		text = strings.Trim(text, "\n")
		fits := fitting(text, most)
		if fits == len(text) {
			if text != "" {
				parts = append(parts, text)
			}
			return parts
		}
		cut := fits
		for _, at := range []string{"\n\n", "\n", " "} {
			// A part of less than a quarter is worse than a cut inside of a paragraph.
			if i := strings.LastIndex(text[:min(fits+len(at), len(text))], at); i >= fits/4 && i > 0 {
				cut = i
				break
			}
		}
		parts, text = append(parts, strings.TrimRight(text[:cut], " \n")), strings.TrimLeft(text[cut:], " ")
	}
}

// fitting is how many bytes of a text fit.
func fitting(text string, most int) int {
	used := 0
	for at, r := range text {
		if used += telegram.PostSize(r); used > most {
			return at
		}
	}
	return len(text)
}
