package screen

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"signalbox/internal/cli/api"
	"signalbox/internal/gate"
	"signalbox/internal/testbed"
)

// While somebody types a reason, the gate is decided elsewhere and the cursor goes to the next one.
func TestAVoteIsForTheGateThatWasOnTheScreenWhenItsKeyWasPressed(t *testing.T) {
	t.Parallel()
	var asked []string
	s := testbed.ServeHTTP(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked = append(asked, r.URL.Path+" "+string(body))
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"error":"already_resolved","message":"This gate was approved by ada."}`)
	}))
	w := &watch{ctx: t.Context(), api: &api.Client{Base: s}}
	shows := func(gates ...gate.Gate) { w.take(gatesRead{page: gate.GatePage{Gates: gates}}) }
	first, second := gate.Gate{ID: "gate_1", Digest: "aa"}, gate.Gate{ID: "gate_2", Digest: "bb"}
	shows(first, second)
	w.take(key{name: "r"})
	w.take(key{name: "n", text: "no"})
	shows(second)
	call := w.take(key{name: "enter"})
	if call == nil || w.at != second.ID {
		t.Fatalf("the cursor is at %s", w.at)
	}
	w.take(call())
	if want := `/ops/gates/gate_1/reject {"note":"no","digest":"aa"}`; len(asked) != 1 || asked[0] != want {
		t.Errorf("it asked %q, want %s", asked, want)
	}
}

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
