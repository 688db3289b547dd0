package knowledge_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"signalbox/internal/harness/knowledge"
)

// The words of a text do not depend on the case it is written in, and each can be looked
// up in a database.
func TestWordsAreLowerCaseAndShort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		for _, w := range knowledge.Words(text) {
			if w == "" || w != strings.ToLower(w) || len(w) > 64 ||
				strings.ContainsAny(w, " \x00_") && !strings.Contains(w, "_") {
				t.Fatalf("%q", w)
			}
		}
	})
	if diff := cmp.Diff([]string{"parseframe", "parse", "frame", "max_depth", "max", "depth"},
		knowledge.Words("parseFrame(max_depth)")); diff != "" {
		t.Error(diff)
	}
}
