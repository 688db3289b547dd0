package witness_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"

	"signalbox/internal/alarm"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/witness"
)

// asker is a ledger whose checkpoints are cosigned.
type asker struct {
	*ledgertest.Node
	*witness.Asker
	dir    string
	alarms *alarm.Alarms
}

// ask opens one that has an entry.
func ask(t *testing.T, address string, quorum int, all ...string) *asker {
	t.Helper()
	dir := t.TempDir()
	n := ledgertest.Open(t, address, nil, parts(), ledgertest.Dir(dir))
	n.Run()
	peers, err := witness.ParsePeers(all)
	n.Must(err)
	a := &asker{Node: n, dir: dir, alarms: alarm.New(n.DB, n.Ledger)}
	a.Asker = witness.Ask(witness.Options{
		DB: n.DB, Ledger: n.Ledger, Alarms: a.alarms, Peers: peers, Quorum: quorum, Every: time.Second, Bound: 10 * time.Minute,
		Now: n.Clock.Now, Log: slog.New(slog.DiscardHandler),
	})
	a.grow()
	return a
}

// grow appends an entry, and waits until it is under a checkpoint.
func (a *asker) grow() {
	a.T.Helper()
	a.Append(ledger.Event{Kind: "test.noted", Actor: "system", Body: struct{}{}})
	a.Must(a.Ledger.Checkpoint(a.T.Context()))
}

func (a *asker) size() int64 {
	a.T.Helper()
	_, size, err := a.Ledger.Signed(a.T.Context())
	a.Must(err)
	return size
}

// evil is the ledger's own key, in the hands of somebody who signs another history with it.
func (a *asker) evil() *history {
	a.T.Helper()
	private, err := os.ReadFile(filepath.Join(a.dir, ledger.KeyFile))
	a.Must(err)
	key, err := note.NewSigner(strings.TrimSpace(string(private)))
	a.Must(err)
	return &history{t: a.T, key: key}
}

func (a *asker) kinds() (all []string) {
	a.T.Helper()
	open, err := a.alarms.List(a.T.Context(), false)
	a.Must(err)
	for _, one := range open {
		all = append(all, one.Kind)
	}
	return all
}

func TestWitnessesCosignTheLedgerAndAQuorumOfThemCounts(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		one, two, three := newStrange(t, "w.example/1"), newStrange(t, "w.example/2"), newStrange(t, "w.example/3")
		var all []string
		for _, w := range []*strange{one, two, three} {
			all = append(all, w.vkey()+"@"+w.URL)
		}
		away := func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }
		a := ask(t, address, 2, all...)
		two.does(away)
		three.does(away)
		a.Must(a.Round(t.Context()))
		if _, _, err := a.Witnessed(t.Context()); !fault.Is(err, fault.NotFound) {
			t.Errorf("one of three is no quorum of two: %v", err)
		}
		// A witness that is back is asked again after its pause, for the checkpoint that the others have cosigned.
		calls := two.calls()
		two.does(nil)
		a.Must(a.Round(t.Context()))
		if two.calls() != calls {
			t.Error("there was no pause")
		}
		a.Move(time.Minute)
		a.Must(a.Round(t.Context()))
		text, size, err := a.Witnessed(t.Context())
		if err != nil || size != a.size() {
			t.Fatalf("over %d entries, %v", size, err)
		}
		body, _, _ := strings.Cut(string(text), "\n\n")
		held := 0
		for _, line := range strings.SplitAfter(string(text), "\n") {
			for _, w := range []*strange{one, two, three} {
				if strings.HasPrefix(line, "— "+w.name+" ") && cosignatureHolds(t, line, w.vkey(), body+"\n") {
					held++
				}
			}
		}
		if held != 2 {
			t.Errorf("%d cosignatures hold:\n%s", held, text)
		}
		// What grows meanwhile is cosigned with a proof, and an export under it verifies.
		for range 3 {
			a.grow()
			a.Move(time.Hour)
			a.Must(a.Round(t.Context()))
		}
		text, size, err = a.Witnessed(t.Context())
		a.Must(err)
		var file bytes.Buffer
		a.Must(a.Ledger.ExportUnder(t.Context(), &file, text, size))
		got, err := ledger.VerifyExport(&file, a.Ledger.Key(), nil, ledger.Watch{})
		if err != nil || got.Entries != size || string(got.Note) != string(text) || size != a.size() {
			t.Errorf("%+v, %v", got, err)
		}
		if a.Problem() != "" || len(a.kinds()) > 0 || a.Ledger.Mismatch() != nil {
			t.Errorf("%q, %q, %v", a.Problem(), a.kinds(), a.Ledger.Mismatch())
		}
	})
}

func TestAQuorumThatIsNotMetForTooLongIsAnAlarm(t *testing.T) {
	w := newStrange(t, "w.example/1")
	a := ask(t, storetest.SQLite(t), 1, w.vkey()+"@"+w.URL)
	for name, answer := range map[string]func(http.ResponseWriter){
		"it does not know us":                    func(w http.ResponseWriter) { w.WriteHeader(http.StatusForbidden) },
		"it answers with nothing":                func(http.ResponseWriter) {},
		"it answers with a line of its own":      func(w http.ResponseWriter) { _, _ = io.WriteString(w, "— w.example/1 AAAA\n") },
		"it redirects":                           func(w http.ResponseWriter) { w.Header().Set("Location", "/"); w.WriteHeader(302) },
		"it has seen more, and proves it not":    func(w http.ResponseWriter) { w.WriteHeader(409); _, _ = io.WriteString(w, "99999\n") },
		"it has seen another, and proves it not": func(w http.ResponseWriter) { w.WriteHeader(422) },
	} {
		w.does(answer)
		a.Move(time.Hour)
		a.Must(a.Round(t.Context()))
		if _, _, err := a.Witnessed(t.Context()); err == nil || a.States()[0].Problem == "" || a.Ledger.Mismatch() != nil {
			t.Errorf("%s: %v, %+v, %v", name, err, a.States(), a.Ledger.Mismatch())
		}
	}
	if kinds := a.kinds(); a.Problem() == "" || len(kinds) != 1 || kinds[0] != "witness_quorum" {
		t.Errorf("%q, %q", a.Problem(), kinds)
	}
	w.does(nil)
	a.Move(time.Hour)
	a.Must(a.Round(t.Context()))
	if a.Problem() != "" || a.States()[0].Problem != "" {
		t.Errorf("%q, %+v", a.Problem(), a.States())
	}
}

func TestAWitnessThatHasSeenAnotherHistoryStopsTheLedger(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		leaves int
	}{
		"another root of the same size":      {http.StatusUnprocessableEntity, 1},
		"more than there is":                 {http.StatusConflict, 9},
		"more than there is, said as a fork": {http.StatusUnprocessableEntity, 9},
	} {
		t.Run(name, func(t *testing.T) {
			w := newStrange(t, "w.example/1")
			a := ask(t, storetest.SQLite(t), 0, w.vkey()+"@"+w.URL)
			evil := a.evil()
			for range c.leaves {
				evil.grow("something else")
			}
			w.shows(evil.sign(evil.text()))
			w.does(func(w http.ResponseWriter) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, "9\n")
			})
			if err := a.Round(t.Context()); !fault.Is(err, fault.LedgerMismatch) || a.Ledger.Mismatch() == nil {
				t.Errorf("%v, %v", err, a.Ledger.Mismatch())
			}
			if kinds := a.kinds(); len(kinds) != 1 || kinds[0] != "witness_fork" {
				t.Errorf("alarms %q", kinds)
			}
			err := a.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
				tx.Append(ledger.Event{Kind: "test.noted", Actor: "system", Body: struct{}{}})
				return nil
			})
			if !fault.Is(err, fault.LedgerMismatch) {
				t.Errorf("a write: %v", err)
			}
		})
	}
}

func TestAWitnessCannotStopTheLedgerByALie(t *testing.T) {
	w := newStrange(t, "w.example/1")
	a := ask(t, storetest.SQLite(t), 0, w.vkey()+"@"+w.URL)
	liar := newHistory(t, a.Ledger.Origin())
	liar.grow("a", "b", "c", "d", "e", "f", "g", "h", "i")
	honest, _, err := a.Ledger.Signed(t.Context())
	a.Must(err)
	for name, shown := range map[string]string{
		"a checkpoint that another key has signed": liar.sign(liar.text()),
		"our own checkpoint":                       string(honest),
		"no checkpoint":                            "nothing",
	} {
		w.shows(shown)
		w.does(func(w http.ResponseWriter) { w.WriteHeader(http.StatusUnprocessableEntity) })
		a.Move(time.Hour)
		a.Must(a.Round(t.Context()))
		if a.Ledger.Mismatch() != nil || a.States()[0].Problem == "" {
			t.Errorf("%s: %v, %+v", name, a.Ledger.Mismatch(), a.States())
		}
	}
}

func TestASignalboxWitnessesAnother(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		a := ask(t, storetest.SQLite(t), 1)
		k := keep(t, address, t.TempDir(), a.Ledger.Key())
		peers, err := witness.ParsePeers([]string{k.Cosigner.String() + "@" + k.web.URL + witness.Prefix})
		a.Must(err)
		o := a.Options
		o.Peers = peers
		a.Asker = witness.Ask(o)
		for range 3 {
			a.grow()
			a.Must(a.Round(t.Context()))
			if _, size, err := a.Witnessed(t.Context()); err != nil || size != a.size() {
				t.Fatalf("over %d of %d entries, %v, %+v", size, a.size(), err, a.States())
			}
		}
		// Another process knows nothing of what was asked, and is told.
		a.Asker = witness.Ask(o)
		a.grow()
		a.Must(a.Round(t.Context()))
		if _, size, err := a.Witnessed(t.Context()); err != nil || size != a.size() {
			t.Errorf("over %d of %d entries, %v", size, a.size(), err)
		}
		testbed.Until(t, "the witness to have it", func() bool { return k.Count("SELECT count(*) FROM witness_log") == 1 })
	})
}
