package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// safe is what a backup takes: an identity, the saved keys, and a place.
type safe struct{ dir, identity, recipient, keys, place string }

func newSafe(t *testing.T, data string) safe {
	t.Helper()
	s := safe{dir: t.TempDir()}
	s.identity, s.keys, s.place = filepath.Join(s.dir, "id"), filepath.Join(s.dir, "keys.age"), filepath.Join(s.dir, "place")
	s.recipient = strings.SplitN(mustRun(t, data, "backup", "identity", "--out", s.identity), "\n", 2)[0]
	mustRun(t, data, "backup", "keys", "--out", s.keys, "--recipient", s.recipient)
	return s
}

// backup is the command that makes one.
func (s safe) backup(more ...string) []string {
	return append([]string{"backup", "--to", s.place, "--recipient", s.recipient}, more...)
}

// restore is the command that brings it back.
func (s safe) restore(more ...string) []string {
	return append([]string{"restore", "--from", s.place, "--identity", s.identity, "--keys", s.keys}, more...)
}

// loaded is a server that was written to by many until so many calls were acknowledged, and still is.
func loaded(t *testing.T, p *process, calls int) (w *witness, stop func()) {
	t.Helper()
	w = &witness{acked: map[string]bool{}}
	end := make(chan struct{})
	clients := w.agents(p, 8, end)
	w.more(t, calls)
	return w, func() { close(end); clients.Wait() }
}

// killed runs a command and kills it when something has come so far, if it has not ended before.
func killed(t *testing.T, dir string, is func() bool, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), binary, args...)
	cmd.Env = append(cleanEnv(), "SIGNALBOX_DATA="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	testbed.Until(t, "the command to come so far", func() bool {
		select {
		case <-ended:
			return true
		default:
			return is()
		}
	})
	_ = cmd.Process.Kill()
	<-ended
}

// size is how many bytes are in files, 0 for those that are not there.
func size(paths ...string) (bytes int64) {
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// count is how many files a folder has.
func count(dir string) int {
	all, _ := os.ReadDir(dir)
	return len(all)
}

func TestABackupThatWasKilledLeavesTheOneBeforeAndARestoreThatWasKilledGoesOn(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	s := newSafe(t, p.dir)
	w, stop := loaded(t, p, 30)
	mustRun(t, p.dir, s.backup()...)
	for i := range 6 {
		w.more(t, 30)
		had := count(s.place)
		killed(t, p.dir, func() bool { return count(s.place) > had+i%3 }, s.backup()...)
		data := filepath.Join(t.TempDir(), "restored")
		mustRun(t, data, s.restore()...)
		mustRun(t, data, "ledger", "rebuild", "--check")
	}
	stop()
	// The last acknowledged entries are in the backup once they are signed.
	testbed.Until(t, "a backup of everything", func() bool {
		return !strings.Contains(mustRun(t, p.dir, s.backup()...), "younger than the newest checkpoint")
	})
	p.stop()

	data := filepath.Join(t.TempDir(), "restored")
	database := filepath.Join(data, "signalbox.db")
	for _, bytes := range []int64{1, 1_400_000, 1_700_000} {
		killed(t, data, func() bool { return size(database, database+"-wal") > bytes }, s.restore()...)
	}
	code, out := run(t, data, s.restore()...)
	if code != 0 && !strings.Contains(out, "is not empty: a ledger") { // it may have been done before it was killed
		t.Fatalf("exit code %d\n%s", code, out)
	}
	back := up(t, data)
	w.verify(t, back)
	if tail := mustRun(t, data, "ledger", "tail", "--kind", "ledger.restored", "--body"); strings.Count(tail,
		"ledger.restored") != 1 || !strings.Contains(tail, `"root":"`) {
		t.Errorf("how it was restored: %s", tail)
	}
}

func TestHalfALedgerAndALostOneAreNotStarted(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	mustRun(t, p.dir, "agents", "add", "bot")
	database := filepath.Join(p.dir, "signalbox.db")
	p.kill()
	// The log of SQLite has everything: without it the file is an empty database.
	for _, name := range []string{database + "-wal", database + "-shm"} {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		wantRefusal(t, p.dir, 1, []string{"signalbox restore", "signalbox migrate", "begin a new one"}, "up", "--listen",
			"127.0.0.1:0")
	}
	for _, name := range []string{"ledger.key", "ledger.pub", "checkpoint"} { // the last one may not have been written yet
		if err := os.Remove(filepath.Join(p.dir, name)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	up(t, p.dir).stop() // a new ledger, as the sentence says
}

func TestAMigrationThatWasKilledGoesOnAndEndsOnOneSide(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	p := up(t, t.TempDir())
	w, stop := loaded(t, p, 120)
	stop()
	p.stop()
	there := []string{"migrate", "--from", "sqlite", "--to", "postgres", "--db", address}
	closed := filepath.Join(p.dir, "signalbox.db")
	for i := range 3 {
		before := size(closed, closed+"-wal")
		killed(t, p.dir, func() bool { return i == 0 || size(closed, closed+"-wal") != before }, there...)
	}
	code, out := run(t, p.dir, there...)
	if code != 0 && !strings.Contains(out, "was migrated to PostgreSQL") {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	wantRefusal(t, p.dir, 1, []string{"was migrated to PostgreSQL"}, "up", "--listen", "127.0.0.1:0")
	wantRefusal(t, p.dir, 1, []string{"was migrated to PostgreSQL"}, there...)
	q := up(t, p.dir, "--db", address)
	w.verify(t, q, "--db", address)
	wantRefusal(t, p.dir, 1, []string{"process"}, there...) // the folder is in use
	q.stop()

	back := []string{"migrate", "--from", "postgres", "--to", "sqlite", "--db", address}
	wantRefusal(t, p.dir, 1, []string{"not empty"}, back...)
	for _, name := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(closed + name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	mustRun(t, p.dir, back...)
	wantRefusal(t, p.dir, 1, []string{"was migrated to SQLite"}, "up", "--listen", "127.0.0.1:0", "--db", address)
	w.verify(t, up(t, p.dir))
}

func TestTheServerMakesBackupsByItself(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := safe{dir: t.TempDir()}
	s.identity, s.keys, s.place = filepath.Join(s.dir, "id"), filepath.Join(s.dir, "keys.age"), filepath.Join(s.dir, "place")
	s.recipient = strings.SplitN(mustRun(t, dir, "backup", "identity", "--out", s.identity), "\n", 2)[0]
	configure(t, dir, fmt.Sprintf("backup: {to: %q, every: 1h, recipients: [%s]}\n", s.place, s.recipient))
	p := up(t, dir)
	var ready struct {
		Ready  bool `json:"ready"`
		Backup struct {
			LastSuccess string `json:"last_success"`
			LastFailure string `json:"last_failure"`
			Overdue     bool   `json:"overdue"`
		} `json:"backup"`
	}
	testbed.Until(t, "the first backup to be in /readyz", func() bool {
		p.get("/readyz", &ready)
		return ready.Backup.LastSuccess != ""
	})
	if !ready.Ready || ready.Backup.Overdue {
		t.Errorf("%+v", ready)
	}
	for _, args := range [][]string{{"status"}, {"doctor"}} {
		if out := mustRun(t, dir, args...); !strings.Contains(out, "backups") {
			t.Errorf("%v does not say how backups are:\n%s", args, out)
		}
	}
	if _, metrics, err := p.call("GET", "/metrics", ""); err != nil ||
		!strings.Contains(metrics, "signalbox_backup_last_success_timestamp_seconds 1") {
		t.Errorf("the metrics have no backup: %v", err)
	}
	mustRun(t, dir, "backup", "keys", "--out", s.keys)
	data := filepath.Join(t.TempDir(), "restored")
	mustRun(t, data, s.restore()...)
}
