package storetest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"signalbox/internal/testbed"
)

// Cluster is a PostgreSQL server that belongs to one test, which may kill and restart
// it. Starting one takes seconds, so use Postgres wherever the server may live.
type Cluster struct {
	Address string

	dir, bin string
	port     string
	as       *syscall.Credential // PostgreSQL does not run as root
	server   *exec.Cmd
}

// NewCluster creates a server on loopback and starts it. It is killed and removed at the
// end of the test.
func NewCluster(t testing.TB) *Cluster {
	t.Helper()
	bin := os.Getenv("SIGNALBOX_TEST_PGBIN")
	if bin == "" {
		testbed.Missing(t, "there is no PostgreSQL; run the tests with make test")
	}
	dir, err := os.MkdirTemp("", "signalbox-cluster-") //nolint:usetesting // PostgreSQL's user has to reach it
	if err != nil {
		t.Fatal(err)
	}
	c := &Cluster{dir: dir, bin: bin}
	address := testbed.FreeAddress(t)
	_, c.port, _ = strings.Cut(address, ":")
	c.Address = "postgres://signalbox@" + address + "/postgres"
	t.Cleanup(func() {
		c.Kill()
		_ = os.RemoveAll(dir)
	})
	// PostgreSQL refuses to run as root, which tests in a container are.
	if os.Getuid() == 0 {
		c.as = postgresUser(t)
		if err := os.Chown(dir, int(c.as.Uid), int(c.as.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	initdb := c.command("initdb", "-D", c.data(), "-U", "signalbox", "--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8")
	if out, err := initdb.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	c.Start(t)
	return c
}

func (c *Cluster) data() string { return filepath.Join(c.dir, "data") }

// command makes a command that runs as PostgreSQL's user. The process group of its own
// keeps a Ctrl-C at the terminal from reaching it before the test has cleaned up.
func (c *Cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(context.Background(), filepath.Join(c.bin, name), args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as, Setpgid: true}
	return cmd
}

// Start starts the server, again after Kill, and waits until it takes connections. It
// tries several times: after a kill the shared memory of the old processes may still be
// in use.
func (c *Cluster) Start(t testing.TB) {
	t.Helper()
	testbed.Until(t, "PostgreSQL to take connections", func() bool {
		_ = os.Remove(filepath.Join(c.data(), "postmaster.pid")) // left by a kill
		c.server = c.command("postgres", "-D", c.data(), "-p", c.port,
			"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+c.dir)
		log, err := os.OpenFile(filepath.Join(c.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		c.server.Stdout, c.server.Stderr = log, log
		err = c.server.Start()
		_ = log.Close()
		if err != nil {
			t.Fatal(err)
		}
		ready := false
		testbed.Until(t, "PostgreSQL to answer", func() bool {
			out, err := c.command("pg_isready", "-h", "127.0.0.1", "-p", c.port).Output()
			ready = err == nil && strings.Contains(string(out), "accepting")
			return ready || exited(c.server.Process.Pid)
		}, logFile(filepath.Join(c.dir, "log")))
		if !ready { // the processes of the one before may still hold its shared memory
			c.Kill()
		}
		return ready
	}, logFile(filepath.Join(c.dir, "log")))
}

// logFile is a file that is printed when a test fails.
type logFile string

func (f logFile) String() string { text, _ := os.ReadFile(string(f)); return string(text) }

// exited reports whether a process has ended, zombies included, since nobody has waited
// for it yet. Without it a server that fails at once would be waited for until the
// test's time is up.
func exited(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// AskForPasswords has the server ask everybody for a password from now on. Users have to have one by then.
func (c *Cluster) AskForPasswords(t testing.TB) {
	t.Helper()
	testbed.Write(t, filepath.Join(c.data(), "pg_hba.conf"), "host all all 127.0.0.1/32 scram-sha-256\n")
	if out, err := c.command("pg_ctl", "-D", c.data(), "reload").CombinedOutput(); err != nil {
		t.Fatalf("pg_ctl reload: %v\n%s", err, out)
	}
}

// Kill ends the server and all its processes with SIGKILL, as a power cut would.
func (c *Cluster) Kill() {
	if c.server == nil || c.server.Process == nil {
		return
	}
	// Backends have process groups of their own, and would live on for a moment.
	pid := c.server.Process.Pid
	children, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	_ = syscall.Kill(pid, syscall.SIGKILL)
	for child := range strings.FieldsSeq(string(children)) {
		if n, err := strconv.Atoi(child); err == nil {
			_ = syscall.Kill(n, syscall.SIGKILL)
		}
	}
	_ = c.server.Wait()
	c.server = nil
}

// postgresUser is the user that the package of PostgreSQL creates. It is needed only
// when the tests run as root.
func postgresUser(t testing.TB) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		t.Fatalf("PostgreSQL does not run as root, and there is no user for it: %v", err)
	}
	uid, _ := strconv.ParseUint(u.Uid, 10, 32)
	gid, _ := strconv.ParseUint(u.Gid, 10, 32)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
