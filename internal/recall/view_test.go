package recall_test

import (
	"testing"

	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/recall"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
)

type color struct {
	Name string `json:"name"`
}

// colored has what the newest entry of each subject is.
var colored = ledgertest.Part{
	Migrations: store.Migrations{Package: "colored", Steps: []string{
		"CREATE TABLE colored (subject {text} PRIMARY KEY, seq {bigint} NOT NULL) {strict};",
	}},
	Projection: ledger.Projection{
		Name: "colored", Tables: ledger.Tables("colored (subject)"),
		Apply: map[string]ledger.Apply{"thing.colored": func(tx *store.Tx, e *ledger.Entry) error {
			tx.Exec("INSERT INTO colored (subject, seq) VALUES ($1, $2) ON CONFLICT (subject) DO UPDATE SET seq = excluded.seq",
				e.Subject, e.Seq)
			return nil
		}},
	},
}

func TestAViewHoldsTheNewestBodyOfEachSubject(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n := ledgertest.Open(t, address, nil, []ledgertest.Part{colored})
		n.Run()
		for _, of := range [][2]string{{"sky", "grey"}, {"sea", "green"}, {"sky", "blue"}} {
			n.Append(ledger.Event{Kind: "thing.colored", Actor: "system", Subject: of[0], Body: color{of[1]}})
		}
		var v recall.View[color]
		if _, known := v.Get("sky"); known {
			t.Error("an empty view knows something")
		}
		n.Must(v.Load(t.Context(), n.Ledger, "JOIN colored ON colored.seq = e.seq"))
		followed := n.Entries("thing.colored")[0]
		followed.Subject = "road"
		n.Must(v.Follow(&followed))
		v.Put("sea", 9, color{"black"})
		v.Put("sea", 8, color{"red"}) // committed before, and put afterwards
		for subject, want := range map[string]string{"sky": "blue", "sea": "black", "road": "grey"} {
			if got, known := v.Get(subject); got.Name != want || !known {
				t.Errorf("%s: %+v", subject, got)
			}
		}
	})
}
