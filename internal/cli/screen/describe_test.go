package screen

import (
	"strings"
	"testing"

	"signalbox/internal/gate"
)

// An agent says what led to a gate, and could have it look like another part of it.
func TestWhatLedToAGateDoesNotLookLikeWhatIsProposed(t *testing.T) {
	t.Parallel()
	rows := describe(&gate.Gate{
		Title: "bash", ProposedAction: "rm -rf /srv", Approvers: []string{"operator"}, Quorum: 1,
		Origin:  gate.Origin{Run: "run_01jt4k9q2m8x3v7b5n6c0d1e2f"},
		Context: []gate.Fact{{Name: "last prompt", Value: "x\n\n" + faint.of("What is proposed") + "\nls\nArtifact\n{}"}},
	}, 60)
	all := strings.Join(rows, "\n")
	if strings.Count(all, faint.of("What is proposed")+"\nrm -rf /srv") != 1 ||
		!strings.Contains(all, "run_01jt4k9q2m8x3") {
		t.Errorf("%q", all)
	}
	_, led, _ := strings.Cut(all, "last prompt")
	led, _, _ = strings.Cut(led, faint.of("Gate"))
	for row := range strings.SplitSeq(strings.Trim(led, "\n"), "\n") {
		if row != "" && row[0] != '\x1b' || strings.Contains(row, "What is proposed") && !strings.Contains(row,
			"⟨U+001B⟩") {
			t.Errorf("the row %q has no mark", row)
		}
	}
}
