package screen

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/show"
)

// TestALineIsAsWideAsItsPlace: whatever agents write, no line runs into the next.
func TestALineIsAsWideAsItsPlace(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text, room := rapid.String().Draw(t, "text"), rapid.IntRange(1, 60).Draw(t, "room")
		line := bold.of(show.Text(text)) + faint.of("東京")
		if got := wide(fit(line, room)); got != room {
			t.Fatalf("%q is %d wide, want %d", fit(line, room), got, room)
		}
		if room < 4 {
			return
		}
		lines := wrapped(text, room)
		for _, one := range lines {
			if wide(strings.TrimRight(one, " ")) > room {
				t.Fatalf("%q is wider than %d", one, room)
			}
			if strings.ContainsAny(one, "\x1b\r\n") {
				t.Fatalf("%q moves the cursor", one)
			}
		}
		letters := func(s string) string { return strings.Join(strings.Fields(s), "") }
		want := strings.NewReplacer("\n", "", "\r", "").Replace(text) // an end of line is no letter
		if got := letters(strings.Join(lines, "")); letters(show.Text(want)) != "" && got == "" {
			t.Fatalf("nothing is left of %q", text)
		}
	})
}

func TestKeys(t *testing.T) {
	var got []string
	for text := "jü\x1b[A\x1b\x1b[6~ \r\x7f\x03\x01"; text != ""; {
		var k key
		k, text = nextKey(text)
		got = append(got, k.name)
	}
	if diff := cmp.Diff([]string{"j", "ü", "up", "esc", "pgdown", "space", "enter", "backspace", "ctrl+c", "unknown"},
		got); diff != "" {
		t.Error(diff)
	}
}
