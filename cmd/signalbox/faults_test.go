package main

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"signalbox/internal/run/runtest"
	"signalbox/internal/store/storetest"
	"signalbox/internal/testbed"
)

// wantRefusal runs a command that has to fail with a code and say certain things.
func wantRefusal(t *testing.T, dir string, code int, says []string, args ...string) {
	t.Helper()
	got, out := run(t, dir, args...)
	if got != code {
		t.Errorf("signalbox %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out)
	}
	for _, s := range says {
		if !strings.Contains(out, s) {
			t.Errorf("signalbox %s does not say %q:\n%s", strings.Join(args, " "), s, out)
		}
	}
}

func TestBadUsageIsAnsweredWithWhatWasMeant(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		testbed.Write(t, path, text)
		return path
	}
	for _, c := range []struct {
		name string
		code int
		says string
		args []string
	}{
		{"an unknown command", 2, `Did you mean "up"?`, []string{"uo"}},
		{"an unknown sub-command", 2, `Did you mean "verify"?`, []string{"ledger", "verfy"}},
		{"an unknown flag", 2, `Did you mean "--listen"?`, []string{"up", "--lisen", ":1"}},
		{"a missing argument", 2, "takes the name of the agent", []string{"agents", "add"}},
		{"a number that is none", 2, "whole number", []string{"ledger", "prove", "x"}},
		{"an unknown protocol", 2, `Did you mean "signal"?`, []string{"agents", "add", "x", "--protocol", "signl"}},
		{
			"an unknown key in a file", 1, `:2: the key "ledger.retenton" is not known. Did you mean "ledger.retention"?`,
			[]string{"config", "check", write("c.yaml", "ledger:\n  retenton: 3d\n")},
		},
		{
			"a bad value in a file", 1, "such as 30d",
			[]string{"config", "check", write("c.yaml", "ledger: {retention: soon}\n")},
		},
		{"a file that is no YAML", 1, "not valid YAML", []string{"config", "check", write("c.yaml", "a: [\n")}},
		{"a key twice", 1, "listen", []string{"config", "check", write("c.yaml", "listen: :1\nlisten: :2\n")}},
		{"setting an unknown key", 1, `Did you mean "listen"?`, []string{"config", "set", "listn", "x"}},
		{"setting a bad value", 1, "such as 127.0.0.1:7446", []string{"config", "set", "listen", "x"}},
		{"a bad listen address", 1, "listen (from --listen)", []string{"up", "--listen", "nonsense"}},
		{"a database that is none we know", 1, "postgres://", []string{"up", "--listen", "127.0.0.1:0", "--db", "mysql://x"}},
		{"half a certificate", 1, "go together", []string{"up", "--tls-cert", "x"}},
		{
			"a certificate that is not there", 1, "PEM files",
			[]string{"up", "--listen", "127.0.0.1:0", "--tls-cert", "x", "--tls-key", "y"},
		},
		{
			"a configuration file that is not there", 1, "Cannot read the configuration file",
			[]string{"up", "--config", "nowhere.yaml"},
		},
		{"no server", 4, "signalbox up", []string{"status"}},
		{"a server that is not reached", 4, "cannot be reached", []string{"agents", "ls", "--server", "http://127.0.0.1:1"}},
		{"an export that is not there", 1, "--key", []string{"ledger", "verify", "nowhere"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.name == "a server that is not reached" {
				testbed.Write(t, filepath.Join(dir, "operator.token"), "x")
			}
			wantRefusal(t, dir, c.code, []string{c.says}, c.args...)
		})
	}
}

func TestAServerThatCannotStartSaysWhatToDo(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()

	t.Run("a port in use", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "data")
		wantRefusal(t, dir, 1, []string{"is in use", "--listen 127.0.0.1:7447"}, "up", "--listen", taken.Addr().String())
		if _, err := os.Stat(filepath.Join(dir, "signalbox.db")); err == nil {
			t.Error("a database was made although the server could not start")
		}
	})
	t.Run("a data folder that cannot be made", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		testbed.Write(t, file, "")
		wantRefusal(t, filepath.Join(file, "data"), 1, []string{"Cannot create the data folder", "--data"}, "up", "--listen",
			"127.0.0.1:0")
	})
	t.Run("a folder that another server uses", func(t *testing.T) {
		p := up(t, t.TempDir())
		wantRefusal(t, p.dir, 1, []string{"Another Signalbox", fmt.Sprint(p.cmd.Process.Pid)}, "up", "--listen",
			"127.0.0.1:0")
		wantRefusal(t, p.dir, 1, []string{"Another Signalbox"}, "ledger", "rebuild")
	})
	t.Run("a database that is not there", func(t *testing.T) {
		wantRefusal(t, t.TempDir(), 1, []string{"PostgreSQL cannot be reached", "--db"}, "up", "--listen", "127.0.0.1:0",
			"--db", "postgres://u:hunter2@127.0.0.1:1/x")
	})
	t.Run("a password is not repeated", func(t *testing.T) {
		for _, address := range []string{
			"postgres://u:hunter2@127.0.0.1:1/x", "postgres://u:hunter2@:nonsense/x",
			"mysql://u:hunter2@h",
		} {
			if _, out := run(t, t.TempDir(), "up", "--listen", "127.0.0.1:0", "--db", address); strings.Contains(out,
				"hunter2") {
				t.Errorf("%s", out)
			}
		}
	})
	t.Run("a file that is no database", func(t *testing.T) {
		dir := t.TempDir()
		testbed.Write(t, filepath.Join(dir, "signalbox.db"), strings.Repeat("not a database ", 100))
		wantRefusal(t, dir, 1, []string{"damaged or is not a Signalbox database"}, "up", "--listen", "127.0.0.1:0")
	})
	t.Run("a database of a newer version", func(t *testing.T) {
		p := up(t, t.TempDir())
		if code := p.stop(); code != 0 {
			t.Fatalf("exit code %d", code)
		}
		db, err := sql.Open("sqlite", filepath.Join(p.dir, "signalbox.db"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(),
			"INSERT INTO schema_step (package, step, sum) VALUES ('ledger', 99, 'x')"); err != nil {
			t.Fatal(err)
		}
		_ = db.Close()
		wantRefusal(t, p.dir, 1, []string{"newer Signalbox"}, "up", "--listen", "127.0.0.1:0")
		wantRefusal(t, p.dir, 1, []string{"newer Signalbox"}, "ledger", "rebuild", "--check")
	})
}

// smallDisk is a disk of a few megabytes, which can be filled and made read-only.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		testbed.Missing(t, "mounting a small disk takes root")
	}
	dir := t.TempDir()
	mount(t, "-t", "tmpfs", "-o", "size=6m", "tmpfs", dir)
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "umount", "-l", dir).Run() })
	return dir
}

func mount(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), "mount", args...).CombinedOutput(); err != nil {
		t.Fatalf("mount %v: %v\n%s", args, err, out)
	}
}

// addUntil adds agents one by one until the wanted status comes, and returns the
// names that were acknowledged and the last answer.
func addUntil(t *testing.T, p *process, prefix string, want int) (acked []string, answer string) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for i := 0; time.Now().Before(deadline); i++ {
		name := fmt.Sprintf("%s-%d", prefix, i)
		status, text, err := p.call("POST", "/ops/agents",
			fmt.Sprintf(`{"name":%q,"labels":{"filler":%q}}`, name, strings.Repeat("x", 200)))
		if err != nil {
			t.Fatalf("%v\n%s", err, p.log)
		}
		if status == http.StatusCreated {
			acked = append(acked, name)
		}
		if status == want {
			return acked, text
		}
	}
	t.Fatalf("status %d did not come", want)
	return nil, ""
}

func wantAgents(t *testing.T, p *process, names ...string) {
	t.Helper()
	for _, name := range names {
		if status, answer, err := p.call("GET", "/ops/agents/"+name, ""); err != nil || status != http.StatusOK {
			t.Errorf("%s was acknowledged and is lost: %d %s %v", name, status, answer, err)
		}
	}
}

func TestAFullDiskStopsWritesUntilThereIsRoom(t *testing.T) {
	t.Parallel()
	p := up(t, smallDisk(t))
	filler := filepath.Join(p.dir, "filler")
	// As large as it gets: the disk takes no more after that.
	_ = os.WriteFile(filler, make([]byte, 8<<20), 0o600)
	acked, answer := addUntil(t, p, "full", http.StatusServiceUnavailable)
	if !strings.Contains(answer, "store_full") || !strings.Contains(answer, "Free some space") {
		t.Errorf("a full disk is answered with %s", answer)
	}
	if status, answer, err := p.call("GET", "/readyz", ""); err != nil || status != http.StatusServiceUnavailable ||
		!strings.Contains(answer, "Free some space") {
		t.Errorf("/readyz with a full disk: %d %s %v", status, answer, err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	more, _ := addUntil(t, p, "room", http.StatusCreated)
	waitReady(t, p)
	wantAgents(t, p, append(acked, more...)...)
	if out := mustRun(t, p.dir, "ledger", "rebuild", "--check"); !strings.Contains(out, " 0 differences") {
		t.Error(out)
	}
}

// TestARunSaysThatTheDiskIsFull on the page of the run, by the command, in the log of the server and, when there is room
// again, in its record. It is one that the server has started, which nobody watches.
func TestARunSaysThatTheDiskIsFull(t *testing.T) {
	t.Parallel()
	hold, folder, dir := filepath.Join(t.TempDir(), "go"), t.TempDir(), smallDisk(t)
	cli := runtest.CLI{
		Stdout: []byte(strings.Replace(runInit, runSession, "T-"+runtest.Now, 1) + fmt.Sprintf(runTool, "a")), Hold: hold, Linger: time.Hour,
	}
	configure(t, dir, fmt.Sprintf("runs:\n  folders: [%s]\n  amp: {command: %s, permissions: full}\n", folder, cli.Write(t)))
	p := up(t, dir)
	id := p.launch(folder, false)
	shown := func(so func(trouble string, events int64) bool) func() bool {
		return func() bool {
			var r struct {
				Trouble string
				Events  int64
			}
			p.get("/runs/"+id, &r)
			return so(r.Trouble, r.Events)
		}
	}
	testbed.Until(t, "the first event", shown(func(_ string, events int64) bool { return events == 1 }), p.log)
	filler := filepath.Join(p.dir, "filler")
	_ = os.WriteFile(filler, make([]byte, 8<<20), 0o600)
	addUntil(t, p, "full", http.StatusServiceUnavailable)
	began := time.Now()
	testbed.Write(t, hold, "")
	testbed.Until(t, "the trouble", shown(func(trouble string, _ int64) bool {
		return strings.Contains(trouble, "Free some space")
	}), p.log)
	t.Logf("it was said after %s", time.Since(began))
	if out := mustRun(t, p.dir, "runs", "show", id); !strings.Contains(out, "held up") || !strings.Contains(out, "Free some space") {
		t.Errorf("runs show: %s", out)
	}
	if log := p.log.String(); !strings.Contains(log, "a run is held up") || !strings.Contains(log, id) {
		t.Errorf("the log: %s", log)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	testbed.Until(t, "its end", shown(func(trouble string, events int64) bool { return trouble == "" && events == 3 }), p.log,
		text(func() string { return mustRun(t, p.dir, "runs", "show", id) }))
	if out := mustRun(t, p.dir, "runs", "show", id); !strings.Contains(out, "the run was held up, since nothing could be recorded") {
		t.Errorf("the record: %s", out)
	}
	mustRun(t, p.dir, "runs", "cancel", id)
}

func TestAFolderThatBecomesReadOnlyStopsWritesUntilItIsNot(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	p := up(t, dir)
	acked, _ := addUntil(t, p, "before", http.StatusCreated)
	p.stop()
	mount(t, "-o", "remount,ro", dir)
	wantRefusal(t, dir, 1, []string{"Cannot write to the data folder"}, "up", "--listen", "127.0.0.1:0")
	mount(t, "-o", "remount,rw", dir)
	wantAgents(t, up(t, dir), acked...)
}

func TestALostDatabaseIsSaidAndComesBack(t *testing.T) {
	t.Parallel()
	cluster := storetest.NewCluster(t)
	p := up(t, t.TempDir(), "--db", cluster.Address)
	acked, _ := addUntil(t, p, "before", http.StatusCreated)
	cluster.Kill()
	if status, answer, err := p.call("GET", "/readyz", ""); err != nil || status != http.StatusServiceUnavailable ||
		!strings.Contains(answer, "PostgreSQL cannot be reached") {
		t.Errorf("/readyz: %d %s %v", status, answer, err)
	}
	if status, answer, err := p.call("POST", "/ops/agents", `{"name":"lost"}`); err != nil ||
		status != http.StatusServiceUnavailable || !strings.Contains(answer, "store_unavailable") {
		t.Errorf("a write without a database: %d %s %v", status, answer, err)
	}
	cluster.Start(t)
	waitReady(t, p)
	more, _ := addUntil(t, p, "after", http.StatusCreated)
	wantAgents(t, p, append(acked, more...)...)
}

func TestAStopFinishesWhatWasAccepted(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	// A stream that is open must not hold the stop up.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/ops/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+p.token())
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()

	var mu sync.Mutex
	var acked []string
	var wg sync.WaitGroup
	for c := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("stop-%d-%d", c, i)
				status, _, err := p.call("POST", "/ops/agents", fmt.Sprintf(`{"name":%q}`, name))
				if err != nil || status != http.StatusCreated {
					return // the server takes no more
				}
				mu.Lock()
				acked = append(acked, name)
				mu.Unlock()
			}
		})
	}
	testbed.Until(t, "some to be acknowledged", func() bool { mu.Lock(); defer mu.Unlock(); return len(acked) >= 16 })
	if code := p.stop(); code != 0 || strings.Contains(p.log.String(), "cut off") {
		t.Errorf("exit code %d:\n%s", code, p.log)
	}
	wg.Wait()
	if len(acked) == 0 {
		t.Fatal("nothing was acknowledged; the test shows nothing")
	}
	wantAgents(t, up(t, p.dir), acked...)
}

func TestNoSecretReachesTheLogOrTheLedger(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir(), "--log-level", "debug")
	_, answer, err := p.call("POST", "/ops/agents", `{"name":"quiet"}`)
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{p.token()}
	for _, word := range strings.FieldsFunc(answer, func(r rune) bool { return r == '"' }) {
		if strings.HasPrefix(word, "rs-amp-") || strings.HasPrefix(word, "amp_live_sk_") {
			secrets = append(secrets, word)
		}
	}
	if len(secrets) != 3 {
		t.Fatalf("expected a token and two keys, have %d: %s", len(secrets), answer)
	}
	_, _, _ = p.call("GET", "/ops/agents?token="+secrets[0], "")
	_, _, _ = p.call("GET", "/"+secrets[1], "")
	export := mustRun(t, p.dir, "ledger", "export")
	p.stop()
	database := testbed.Read(t, filepath.Join(p.dir, "signalbox.db"))
	for _, s := range secrets {
		if strings.Contains(p.log.String(), s) {
			t.Errorf("the log holds %.12s…", s)
		}
		if strings.Contains(export, s) || strings.Contains(string(database), s) {
			t.Errorf("the ledger holds %.12s…", s)
		}
	}
}

func TestAnOldBackupIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	p := up(t, t.TempDir())
	p.stop()
	database := filepath.Join(p.dir, "signalbox.db")
	old := testbed.Read(t, database)
	p = up(t, p.dir)
	addUntil(t, p, "later", http.StatusCreated)
	p.stop()
	testbed.Write(t, database, old)
	cmd := exec.CommandContext(context.Background(), binary, "up", "--data", p.dir, "--listen", "127.0.0.1:0")
	cmd.Env = cleanEnv()
	out, log := &testbed.Buffer{}, &testbed.Buffer{}
	cmd.Stdout, cmd.Stderr = out, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	testbed.Until(t, "where it can be read", func() bool {
		return strings.Contains(out.String(), "It can be read at http://")
	}, out, log)
	for _, s := range []string{"TAKES NO WRITES", "signed over 7 entries and the database holds 4", "signalbox restore"} {
		if !strings.Contains(out.String(), s) {
			t.Errorf("the person who starts it does not see %q:\n%s", s, out)
		}
	}
	if !strings.Contains(log.String(), "level=ERROR") {
		t.Errorf("the log does not say it:\n%s", log)
	}
	wantRefusal(t, p.dir, 1, []string{"NOT READY", "the end of the ledger is gone"}, "status")
	wantRefusal(t, p.dir, 1, []string{"the end of the ledger is gone"}, "agents", "add", "x")
}
