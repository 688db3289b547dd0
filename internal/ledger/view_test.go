package ledger_test

import (
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
)

func TestAViewHoldsTheNewestBodyOfEachSubject(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := start(t, address, t.TempDir())
		write(t, n, "a")
		seq := write(t, n, "b")
		var v ledger.View[noteBody]
		if _, known := v.Get("a"); known {
			t.Error("an empty view knows something")
		}
		if err := v.Load(t.Context(), n.Ledger, "JOIN note ON note.seq = e.seq"); err != nil {
			t.Fatal(err)
		}
		e, err := n.Entry(t.Context(), seq)
		if err != nil {
			t.Fatal(err)
		}
		v.Put("b", noteBody{"b", "another"})
		e.Subject = "c"
		if err := v.Follow(&e); err != nil {
			t.Fatal(err)
		}
		for subject, want := range map[string]noteBody{
			"a": {"a", "text of a"}, "b": {"b", "another"},
			"c": {"b", "text of b"},
		} {
			if got, known := v.Get(subject); got != want || !known {
				t.Errorf("%s: %+v", subject, got)
			}
		}
	})
}
