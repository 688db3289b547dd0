package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"signalbox/internal/audit"
	"signalbox/internal/ledger"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// want is a finding, with a text that is in it.
type want struct {
	kind  audit.Kind
	where string
	text  string
}

// wants waits until each is found, and nothing else.
func (s *site) wants(all []want) {
	s.T.Helper()
	for _, w := range all {
		testbed.Until(s.T, "the audit finds "+string(w.kind)+" "+w.where+" "+w.text, func() bool {
			return s.has(w.kind, w.where, w.text)
		}, s)
	}
	for _, f := range s.audit.Findings() {
		expected := false
		for _, w := range all {
			expected = expected || w.kind == f.Kind && w.where == f.Where
		}
		if !expected {
			s.T.Errorf("nobody did this: %+v", f)
		}
	}
}

// wantStopped waits until writes are stopped and channels were told.
func (s *site) wantStopped() {
	s.T.Helper()
	testbed.Until(s.T, "writes are stopped, and channels were told", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.Ledger.Mismatch() != nil && len(s.told) > 0
	}, s)
}

// history is what is done to the ledger itself. Entries 100 and on are notes, of which no table is made.
func (s *site) history() []want {
	var tile []byte
	s.Must(s.DB.QueryRow(context.Background(), "SELECT hashes FROM ledger_tile WHERE level = 0 AND n = 1", nil, &tile))
	tile[32*7] ^= 1
	// A body that was replaced by that of another entry, with its salt; some that are gone; a column that hides an entry.
	s.forge("UPDATE {entries} SET salt = (SELECT salt FROM {entries} WHERE seq = 202), "+
		"body = (SELECT body FROM {entries} WHERE seq = 202) WHERE seq = 201",
		"UPDATE {entries} SET salt = NULL, body = NULL WHERE seq > 300 AND seq <= 310",
		"UPDATE {entries} SET subject = 'hidden' WHERE seq = 402",
		"UPDATE ledger_tile SET hashes = $1 WHERE level = 0 AND n = 1", tile)
	return []want{
		{audit.Bodies, "", "entry 201 "}, {audit.Erasures, "", "entry 301 "}, {audit.Records, "", "entry 402 "},
		{audit.Tiles, "", "entry 264"},
	}
}

// records are records that were changed, with bodies that fit.
func (s *site) records() []want {
	s.forge("UPDATE {entries} SET record = (SELECT record FROM {entries} WHERE seq = 502), "+
		"salt = (SELECT salt FROM {entries} WHERE seq = 502), body = (SELECT body FROM {entries} WHERE seq = 502) "+
		"WHERE seq = 501", "DELETE FROM {entries} WHERE seq = 503")
	return []want{{audit.Records, "", "entry 501"}, {audit.Records, "", "Entry 503 is missing"}}
}

// signed is an older checkpoint in the place of the newest.
func (s *site) signed() []want {
	_, size, err := s.Ledger.Signed(context.Background())
	s.Must(err)
	s.change("UPDATE ledger_checkpoint SET note = $1 WHERE size = $2", oldest(s), size)
	return []want{{audit.Checkpoints, "", "was replaced"}}
}

// file is an older checkpoint in the file.
func (s *site) file() []want {
	testbed.Write(s.T, filepath.Join(s.dir, ledger.CheckpointFile), oldest(s))
	return []want{{audit.Checkpoints, ledger.CheckpointFile, "was signed"}}
}

// oldest is the first checkpoint that was signed.
func oldest(s *site) (note string) {
	s.Must(s.DB.QueryRow(context.Background(), "SELECT note FROM ledger_checkpoint ORDER BY size LIMIT 1", nil, &note))
	return note
}

// power is what grants power.
func (s *site) power() []want {
	s.change("INSERT INTO access_key (id, hash, kind, holder, hint, rate_limit, issued_at, expires_at, "+
		"revoked_at) VALUES ('key_by_hand', $1, 'operator', 'operator_x', '', 0, 0, 0, 0)", []byte("hash"),
		"UPDATE access_key SET revoked_at = 0 WHERE revoked_at > 0",
		"UPDATE operator SET role = 'admin' WHERE name = 'vera'",
		"DELETE FROM agent WHERE name = 'agent-2'",
		"UPDATE gate_resolved SET status = 'approved' WHERE opened_seq = (SELECT max(opened_seq) FROM gate_resolved)",
		"DELETE FROM gate_vote WHERE gate = (SELECT min(gate) FROM gate_vote)",
		"INSERT INTO gate_approval (agent, key, digest, gate, good_for, uses, until_at) VALUES ('a', 'k', 'd', 'g', 0, 9, 0)")
	return []want{
		{audit.Power, "access_key", `id="key_by_hand" was added`}, {audit.Power, "access_key", "another revoked_at"},
		{audit.Power, "operator", "another role"}, {audit.Power, "agent", "is missing"},
		{audit.Power, "gate_resolved", "another status"}, {audit.Power, "gate_vote", "is missing"},
		{audit.Power, "gate_approval", "was added"},
	}
}

// state is what the server works by and nobody gets power from.
func (s *site) state() []want {
	s.change("DELETE FROM timer WHERE subject = (SELECT min(subject) FROM timer)",
		"DELETE FROM schema_step WHERE package = 'gate' AND step = 1",
		"INSERT INTO ledger_cursor (name, seq, holder, held_until) VALUES ('notify', 999999, '', 0)",
		"INSERT INTO behalf_entry (who, seq) VALUES ('user_x', 7)",
		"INSERT INTO alarm (id, workspace, kind, agent, title, detail, raised_at, closed_at, closed_by, note) VALUES "+
			"('alarm_x', '', 'k', '', 't', '', 1, 1, 'vera', '')",
		"DROP INDEX timer_due")
	return []want{
		{audit.State, "timer", "is missing"}, {audit.State, "alarm", `"alarm_x" was added`},
		{audit.Schema, "schema_step", `package="gate" step="1" is missing`}, {audit.Schema, "", "timer_due"},
		{audit.Cursors, "notify", "999999"}, {audit.Followers, "behalf_entry", "was added"},
	}
}

// lessIndex has an index hold other rows than its table, as a disk that fails or an overwritten page does. The table
// stays as it is.
func (s *site) lessIndex() []want {
	if s.DB.Name() == "postgres" {
		s.change("UPDATE pg_index SET indisready = false, indisvalid = false WHERE indexrelid = 'timer_due'::regclass")
		s.change("UPDATE timer SET due_at = due_at + 1", "UPDATE timer SET due_at = due_at - 1")
		s.change("UPDATE pg_index SET indisready = true, indisvalid = true WHERE indexrelid = 'timer_due'::regclass")
		return []want{{audit.Indexes, "timer_due", "rows"}}
	}
	// The index is filled as if it were one of another column.
	var version int
	s.Must(s.DB.Read.QueryRowContext(context.Background(), "PRAGMA schema_version").Scan(&version))
	s.change("PRAGMA writable_schema = 1")
	for _, column := range []string{"workspace", "due_at"} {
		version++
		s.change("UPDATE sqlite_schema SET sql = 'CREATE INDEX timer_due ON timer (" + column + ")' WHERE name = 'timer_due'")
		s.change(fmt.Sprintf("PRAGMA schema_version = %d", version))
		if column == "workspace" {
			s.change("REINDEX timer_due")
			version++
		}
	}
	s.change("PRAGMA writable_schema = 0")
	return []want{{audit.Indexes, "timer", "timer_due"}}
}

// Each kind of change is found by a server that runs, without anybody asking, and again by one that was started
// afterwards. What is not what was signed, or grants power, stops writes.
func TestWhatIsChangedBehindTheServersBackIsFound(t *testing.T) {
	for _, c := range []struct {
		name   string
		tamper func(*site) []want
		stops  bool
		again  bool // a start finds it too; else it refuses by itself, or makes it right
	}{
		{"history", (*site).history, true, true},
		{"records", (*site).records, true, true},
		{"signed", (*site).signed, true, false},
		{"file", (*site).file, true, false},
		{"power", (*site).power, true, true},
		{"state", (*site).state, false, false},
		{"index", (*site).lessIndex, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			storetest.Each(t, func(t *testing.T, address string) {
				dir := t.TempDir()
				s := open(t, address, dir, options{})
				s.fill()
				s.wantClean()
				expected := c.tamper(s)
				s.wants(expected)
				if c.stops {
					s.wantStopped()
				} else if s.Ledger.Mismatch() != nil {
					t.Errorf("writes are stopped: %v", s.Ledger.Mismatch())
				} else if c.name != "index" && s.Count("SELECT count(*) FROM alarm WHERE closed_at = 0") == 0 {
					t.Error("there is no alarm")
				}
				s.Stop()
				if _, err := os.Stat(filepath.Join(dir, "audit")); !os.IsNotExist(err) {
					t.Errorf("the tables beside were left: %v", err)
				}
				if !c.again {
					return
				}
				s = open(t, address, dir, options{})
				s.wants(expected)
			})
		})
	}
}

// The last entries are taken away, and the head is moved back to what is left, while the server runs.
func TestAnEndThatWasTakenAwayIsFound(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		s := open(t, address, t.TempDir(), options{})
		s.fill()
		s.wantClean()
		head := s.Head()
		s.forge("DELETE FROM {entries} WHERE seq > $1", head-20, "UPDATE ledger_head SET seq = $1", head-20,
			"UPDATE ledger_tree SET size = $1", head-20)
		testbed.Until(t, "the end is missed", func() bool { return s.has(audit.Head, "", "ends at") }, s)
		s.wantStopped()
	})
}

// What is put right is forgotten by the next round, and may be found again.
func TestWhatWasPutRightIsNoFindingAnyMore(t *testing.T) {
	storetest.Each(t, func(t *testing.T, address string) {
		s := open(t, address, t.TempDir(), options{})
		s.fill()
		s.passes(1)
		for range 2 {
			s.change("INSERT INTO behalf_entry (who, seq) VALUES ('user_x', 7)")
			s.wants([]want{{audit.Followers, "behalf_entry", "was added"}})
			s.change("DELETE FROM behalf_entry WHERE who = 'user_x'")
			testbed.Until(t, "the finding is gone", func() bool { return len(s.audit.Findings()) == 0 }, s)
		}
		if n := s.audit.Total(audit.Followers); n != 2 {
			t.Errorf("%d findings were counted", n)
		}
	})
}

// A page of the database file is overwritten while the server is stopped.
func TestAPageThatWasOverwrittenIsFound(t *testing.T) {
	address, dir := storetest.SQLite(t), t.TempDir()
	s := open(t, address, dir, options{})
	s.fill()
	s.Stop()
	s.DB.Close() // the last connection copies everything into the file
	file := testbed.Read(t, address)
	const page = 4096
	at := bytes.Index(file, []byte(`{"seq":250,`))
	if at < 0 {
		t.Fatal("entry 250 is not in the file")
	}
	clear(file[at/page*page : (at/page+1)*page])
	testbed.Write(t, address, file)
	s = open(t, address, dir, options{})
	s.wants([]want{{audit.Pages, "", "malformed"}})
	s.wantStopped()
}
