package audit_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/alarm"
	"signalbox/internal/audit"
	"signalbox/internal/behalf"
	"signalbox/internal/gate"
	"signalbox/internal/gate/gatetest"
	"signalbox/internal/ledger"
	"signalbox/internal/ledger/ledgertest"
	"signalbox/internal/roster"
	"signalbox/internal/store"
	"signalbox/internal/testbed"
)

// parts are what the audited ledger has: real tables of keys, operators, gates and timers, and an index that follows.
func parts() []ledgertest.Part {
	return append(gatetest.Parts(), ledgertest.Part{Migrations: behalf.Migrations})
}

// site is a node with an audit that goes as fast as it can.
type site struct {
	*ledgertest.Node
	address, dir string
	audit        *audit.Audit
	roster       *roster.Roster
	gates        *gate.Gates
	index        *behalf.Index

	mu   sync.Mutex
	told []alarm.Alarm // without the ledger
}

// options change how a site is made.
type options struct {
	audit  func(*audit.Options)
	ledger func(*ledger.Options)
}

// open starts a site on a database. One that was stopped goes on in the same folder.
func open(t testing.TB, address, dir string, o options) *site {
	t.Helper()
	s := &site{address: address, dir: dir}
	s.Node = ledgertest.Open(t, address, nil, parts(), ledgertest.Dir(dir), func(l *ledger.Options) {
		l.Alone = l.DB.Name() == "sqlite"
		if o.ledger != nil {
			o.ledger(l)
		}
	})
	log := slog.New(slog.DiscardHandler)
	s.roster = roster.New(roster.Options{DB: s.DB, Ledger: s.Ledger, Now: s.Now, Log: log, Provider: "signalbox.local"})
	s.gates = gate.New(s.DB, s.Ledger, s.roster, log)
	s.index = behalf.New(s.DB, s.Ledger, s.roster)
	sets := []store.Migrations{ledger.Migrations}
	for _, p := range parts() {
		sets = append(sets, p.Migrations)
	}
	ao := audit.Options{
		DB: s.DB, Ledger: s.Ledger, Sets: sets, Projections: s.projections(),
		Power: [][]string{{"roster", "passkey"}, {"gate"}}, Shared: []string{"gate_approval"},
		Followers: []audit.Follower{{
			Table: ledger.Tables(behalf.IndexTable)[0], Seq: "seq", Cursor: behalf.Place, Apply: behalf.Put,
		}},
		Folder: filepath.Join(dir, "audit"), Data: dir, Share: 1, Fast: time.Second, Whole: time.Millisecond,
		Tell: func(_ context.Context, one alarm.Alarm) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.told = append(s.told, one)
		},
		Now: s.Now, Log: log,
	}
	if o.audit != nil {
		o.audit(&ao)
	}
	s.audit = audit.New(ao)
	s.Run(s.roster.Run, s.index.Run, s.audit.Run)
	return s
}

// projections are those of the parts.
func (s *site) projections() (all []ledger.Projection) {
	for _, p := range parts() {
		all = append(all, p.Projection)
	}
	return all
}

// fill has something happen of every sort, and enough of it for several tiles.
func (s *site) fill() {
	s.T.Helper()
	ctx := s.T.Context()
	s.Must(s.roster.Bootstrap(ctx))
	admin, err := s.roster.LocalToken(ctx)
	s.Must(err)
	who, err := s.roster.Authenticate(ctx, admin.Secret)
	s.Must(err)
	for i := range 3 {
		_, keys, err := s.roster.AddAgent(ctx, who, roster.NewAgent{Name: fmt.Sprintf("agent-%d", i)})
		s.Must(err)
		if i == 0 {
			_, err = s.roster.RevokeKey(ctx, who, keys[0].Key.ID)
			s.Must(err)
		}
	}
	_, _, err = s.roster.AddOperator(ctx, who, "vera", "viewer", "")
	s.Must(err)
	for i := range 3 {
		id := gatetest.Open(s.Node, "default", gate.Opening{
			Agent: "agent_x", AgentName: "x", Origin: gate.Origin{Protocol: "signal"}, Risk: "low",
			Shown: gate.Shown{Title: "T", Summary: "S"}, Rules: gate.Rules{Expires: int64(time.Hour / time.Microsecond)},
		})
		if i > 0 {
			_, err := s.gates.Vote(ctx, who, id, gate.Ballot{Note: "No."})
			s.Must(err)
		}
	}
	s.note(700)
}

// note appends entries of which no table is made.
func (s *site) note(n int) {
	s.T.Helper()
	for part := range slices.Chunk(make([]int, n), 100) {
		events := make([]ledger.Event, len(part))
		for i := range events {
			events[i] = ledger.Event{Workspace: "default", Kind: "thing.noted", Actor: "system", Body: map[string]int{"n": i}}
		}
		s.Append(events...)
	}
	s.Must(s.Ledger.Checkpoint(context.Background()))
}

// passes waits until so many whole rounds and as many fast ones have ended, from beginning to end.
func (s *site) passes(n int) {
	s.T.Helper()
	for range n + 1 {
		before := s.audit.Status()
		testbed.Until(s.T, "both rounds have ended", func() bool {
			now := s.audit.Status()
			return now.Last != nil && now.Last != before.Last && now.Fast != nil && now.Fast != before.Fast
		}, s)
	}
}

// String is what the audit says, for tests that fail.
func (s *site) String() string { return fmt.Sprintf("%+v", s.audit.Status()) }

// wantClean wants the audit to find nothing.
func (s *site) wantClean() {
	s.T.Helper()
	s.passes(1)
	now := s.audit.Status()
	if len(now.Findings) > 0 || now.FoundTotal > 0 || now.Problem != "" || s.Ledger.Mismatch() != nil {
		s.T.Errorf("nothing was changed: %+v %v", now, s.Ledger.Mismatch())
	}
	if now.Last.Rows == 0 || now.Last.Tables == 0 || now.Last.Entries == 0 || now.Fast.Rows == 0 {
		s.T.Errorf("a round looked at nothing: %+v %+v", now.Last, now.Fast)
	}
}

// has reports whether there is a finding with a text in it.
func (s *site) has(kind audit.Kind, where, text string) bool {
	return slices.ContainsFunc(s.audit.Findings(), func(f audit.Finding) bool {
		return f.Kind == kind && f.Where == where && slices.ContainsFunc(f.Details, func(d string) bool {
			return strings.Contains(d, text)
		})
	})
}

// change changes the database behind the server's back: statements, each with its arguments behind it. {entries} is the
// table of entries.
func (s *site) change(statements ...any) {
	s.T.Helper()
	s.Must(s.DB.Bookkeep(context.Background(), "ledger_tree", func(tx *store.Tx) error {
		var query string
		var args []any
		flush := func() {
			if query != "" {
				tx.Exec(query, args...)
			}
			query, args = "", nil
		}
		for _, x := range statements {
			if text, ok := x.(string); ok && isStatement(text) {
				flush()
				query = strings.ReplaceAll(text, "{entries}", ledgertest.EntryTable)
				continue
			}
			args = append(args, x)
		}
		flush()
		return nil
	}))
}

// isStatement tells a statement from an argument.
func isStatement(text string) bool {
	word, _, ok := strings.Cut(text, " ")
	return ok && strings.Contains(" INSERT UPDATE DELETE ALTER DROP CREATE SELECT PRAGMA REINDEX ", " "+word+" ")
}

// forge changes the table of entries. Triggers guard it, which are away in the transaction that does so.
func (s *site) forge(statements ...any) {
	s.T.Helper()
	if s.DB.Name() == "postgres" {
		drop, restore := "ALTER TABLE {entries} DISABLE TRIGGER USER", "ALTER TABLE {entries} ENABLE TRIGGER USER"
		s.change(slices.Concat([]any{drop}, statements, []any{restore})...)
		return
	}
	var drop, restore []any
	for _, name := range []string{ledgertest.EntryTable + "_no_delete", ledgertest.EntryTable + "_no_update"} {
		var text string
		const query = "SELECT sql FROM sqlite_schema WHERE name = $1"
		s.Must(s.DB.Read.QueryRowContext(context.Background(), query, name).Scan(&text))
		drop, restore = append(drop, "DROP TRIGGER "+name), append(restore, text)
	}
	s.change(slices.Concat(drop, statements, restore)...)
}
