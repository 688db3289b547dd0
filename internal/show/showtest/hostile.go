// Package showtest has texts that an agent may put into any field that people read, to hide something,
// to look like something else, or to change what stands around it. Only tests import it.
package showtest

import (
	_ "embed"
	"encoding/json" // wire refuses some of the characters
	"testing"
)

//go:embed texts.json
var texts []byte

// Hostile is one such text.
type Hostile struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

// All are the texts.
func All(tb testing.TB) (all []Hostile) {
	tb.Helper()
	if err := json.Unmarshal(texts, &all); err != nil {
		tb.Fatal(err)
	}
	return append(all,
		Hostile{"carriage-return-line", "line one\r\nline two"},
		Hostile{"our-own-number", "⟨U+0041⟩ ⟨byte 41⟩"},
		Hostile{"no-break-space", "a\u00a0b\u2007c\u202fd"},
		Hostile{"variation-selectors", "a\ufe0fb\U000e0100c"},
		Hostile{"braille-blank", "a\u2800b"},
		Hostile{"unassigned", "a\U000e0fffb\u0378c"},
		Hostile{"dcs", "\x1bP0;1|17/ab\x1b\\ok"},
		Hostile{"reverse-screen", "\x1b[?5h\x1b[7mall\x1b#8"},
		Hostile{"right-to-left-letters", "approve \u05d0\u05d1\u05d2 reject"},
		Hostile{"alternate-screen", "\x1b[?1049h\x1b[Happroved\x1b[6n"},
		Hostile{"delete", "a\x7fb"},
		Hostile{"shift-out", "\x0e\x0fa\x1b(0lqk"},
		Hostile{"only-spaces", "   "},
	)
}
