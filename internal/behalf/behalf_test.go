package behalf_test

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"signalbox/internal/behalf"
	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/policy"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
)

// token is one of a handoff, put together so that nobody takes it for a real one.
var token = "ho" + "f_" + strings.Repeat("a1b2", 10)

func TestACallSaysForWhomItIs(t *testing.T) {
	for _, c := range []struct {
		object string
		want   behalf.Named
	}{
		{`{}`, behalf.Named{}},
		{`7`, behalf.Named{}},
		{`{"user":"alice","delegation":"` + token + `"}`, behalf.Named{User: "alice", Claim: policy.Claim{Token: token}}},
		{`{"user":7,"delegation":null}`, behalf.Named{}},
		{`{"delegation":[{"from":"a"}]}`, behalf.Named{Claim: policy.Claim{Hops: true}}},
		{`{"delegation":{"depth":1}}`, behalf.Named{Claim: policy.Claim{Hops: true}}},
		{`{"delegation":"[handoff]"}`, behalf.Named{}},
	} {
		if diff := cmp.Diff(c.want, behalf.In(wire.Raw(c.object))); diff != "" {
			t.Errorf("%s: %s", c.object, diff)
		}
	}
	if n, depth := behalf.At(nil, wire.Raw("3")); depth != 3 || n.Claim.Depth == nil || *n.Claim.Depth != 3 {
		t.Errorf("a depth: %+v", n)
	}
	if n, _ := behalf.At(nil, nil); n.Claim.Depth != nil {
		t.Error("a call that does not say how deep it is has a depth")
	}
	h := http.Header{"X-Amp-User": {"bob"}, "X-Amp-Delegation": {token}}
	if n := behalf.Header(h); n.User != "bob" || n.Claim.Token != token {
		t.Errorf("%+v", n)
	}
	if n := (behalf.Named{User: "alice"}).Or(behalf.Header(h)); n.User != "alice" || n.Claim.Token != token {
		t.Errorf("%+v", n)
	}
}

func TestATokenIsCutFromADocument(t *testing.T) {
	text := []byte(`{"x_delegation":"` + token + `","a":"half_hof_time"}`)
	if got := string(behalf.Cut(text)); got != `{"x_delegation":"[handoff]","a":"half_hof_time"}` {
		t.Error(got)
	}
}

func TestABodySaysForWhomItIs(t *testing.T) {
	for body, want := range map[string][]behalf.Of{
		`{"user":"usr_1","user_claimed":"bob"}`:                                           {{User: "usr_1", Claimed: "bob"}},
		`{"user":"root","machine":"x"}`:                                                   nil, // of another kind of user
		`{"decision":{"user":{"id":"usr_2","verified":true}}}`:                            {{User: "usr_2"}},
		`{"decision":{"user":{"id":"usr_2"},"event":{"user":"eve"}}}`:                     {{User: "usr_2", Claimed: "eve"}},
		`{"user":"usr_1","decision":{"user":{"id":"usr_1","verified":true}}}`:             {{User: "usr_1"}},
		`{"user":"usr_1","decision":{"user":{"id":"usr_2","verified":true},"x":{"y":1}}}`: {{User: "usr_1"}, {User: "usr_2"}},
		`"user`: nil,
		``:      nil,
	} {
		if diff := cmp.Diff(want, behalf.ReadBody([]byte(body))); diff != "" {
			t.Errorf("%s: %s", body, diff)
		}
	}
}

// start opens a ledger with two users, and its index.
func start(t *testing.T, address string) (*ledgertest.Node, *roster.Roster, *behalf.Index) {
	n := ledgertest.Open(t, address, nil, []ledgertest.Part{
		{Migrations: roster.Migrations, Projection: roster.Projection()}, {Migrations: behalf.Migrations},
	})
	r := roster.New(roster.Options{DB: n.DB, Ledger: n.Ledger, Now: n.Now, Log: slog.New(slog.DiscardHandler)})
	x := behalf.New(n.DB, n.Ledger, r)
	n.Run(r.Run, x.Run)
	n.Must(r.Bootstrap(t.Context()))
	return n, r, x
}

func TestEntriesAreFoundByTheirUser(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		n, r, x := start(t, address)
		by := roster.Identity{Kind: roster.HolderOperator, Name: "ina", Role: roster.Admin}
		alice, _, err := r.AddUser(t.Context(), by, roster.NewUser{Name: "alice", Email: "alice@example.com"})
		n.Must(err)
		write := func(workspace, kind string, of behalf.Of) (seq int64) {
			n.Must(n.Ledger.Write(t.Context(), func(tx *ledger.Tx) error {
				tx.Append(ledger.Event{Workspace: workspace, Kind: kind, Actor: "agent:a", Body: of})
				return nil
			}))
			seq, err := n.Ledger.Head(t.Context())
			n.Must(err)
			return seq
		}
		first := write("default", "thing.done", behalf.Of{User: alice.ID})
		write("default", "thing.done", behalf.Of{User: "usr_other"})
		claim := write("default", "thing.done", behalf.Of{User: "usr_other", Claimed: "alice"})
		write("default", "thing.done", behalf.Of{})
		last := write("default", "thing.ended", behalf.Of{User: alice.ID})
		foreign := write("acme", "thing.done", behalf.Of{User: alice.ID})
		find := func(q behalf.Query) (seqs []int64) {
			t.Helper()
			page, err := x.List(t.Context(), q)
			n.Must(err)
			for _, e := range page.Entries {
				seqs = append(seqs, e.Seq)
			}
			return seqs
		}
		testbed.Until(t, "the index has all", func() bool { return len(find(behalf.Query{User: "alice"})) == 3 })
		for _, c := range []struct {
			q    behalf.Query
			want []int64
		}{
			{behalf.Query{User: "alice"}, []int64{first, last, foreign}},
			{behalf.Query{User: alice.ID, Query: ledger.Query{Workspace: "default"}}, []int64{first, last}},
			{behalf.Query{User: "ALICE@example.com", Query: ledger.Query{Newest: true, Limit: 1}}, []int64{foreign}},
			{behalf.Query{User: "alice", Query: ledger.Query{After: first, Limit: 1}}, []int64{last}},
			{behalf.Query{User: "alice", Query: ledger.Query{UpTo: first}}, []int64{first}},
			{behalf.Query{User: "alice", Query: ledger.Query{Kinds: []string{"thing.ended"}}}, []int64{last}},
			{behalf.Query{User: "alice", Claimed: true}, []int64{claim}},
			{behalf.Query{User: alice.ID, Claimed: true}, []int64{claim}},
			{behalf.Query{User: "nobody", Claimed: true}, nil},
		} {
			if diff := cmp.Diff(c.want, find(c.q)); diff != "" {
				t.Errorf("%+v: %s", c.q, diff)
			}
		}
		if _, err := x.List(t.Context(), behalf.Query{User: "nobody"}); !fault.Is(err, fault.NotFound) {
			t.Errorf("a user who does not exist: %v", err)
		}
		confined := wire.WithScope(t.Context(), "acme")
		if page, err := x.List(confined, behalf.Query{User: alice.ID}); err != nil || len(page.Entries) != 1 ||
			page.Entries[0].Seq != foreign {
			t.Errorf("from another workspace: %v, %+v", err, page.Entries)
		}

		// Whoever writes into the table does not make an entry one of alice's.
		n.Must(n.DB.Bookkeep(t.Context(), "behalf_cursor", func(tx *store.Tx) error {
			tx.Exec("INSERT INTO behalf_entry (who, seq) VALUES ($1, $2)", alice.ID, claim)
			return nil
		}))
		if got := find(behalf.Query{User: "alice"}); len(got) != 3 {
			t.Errorf("a forged row was believed: %v", got)
		}
		n.Must(behalf.Reset(t.Context(), n.DB))
		n.WantClean()
	})
}
