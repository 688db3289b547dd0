package proc_test

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"testing"

	"signalbox/internal/proc"
	"signalbox/internal/testbed"
)

func addresses(t *testing.T, c net.Conn) proc.Addresses {
	t.Helper()
	ours, err := netip.ParseAddrPort(c.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	return proc.Addresses{Ours: ours, Theirs: theirs}
}

// accepted is our end of a connection that a program has opened, on an address of this machine. then is what
// it does next, in Python.
func accepted(t *testing.T, listen, dial, then string) (net.Conn, *exec.Cmd) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", listen)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	_, port, _ := net.SplitHostPort(l.Addr().String())
	cmd := exec.CommandContext(testbed.Context(t), "python3", "-c",
		"import os, socket, subprocess, sys\ns = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"+then+
			"\ns.send(b'.')\nsys.stdin.read()", dial, port)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := c.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return c, cmd
}

func TestTheOtherEndOfALocalConnectionIsFound(t *testing.T) {
	for _, at := range [][2]string{{"127.0.0.1:0", "127.0.0.1"}, {"[::1]:0", "::1"}, {":0", "127.0.0.1"}, {":0", "::1"}} {
		t.Run(at[0]+" "+at[1], func(t *testing.T) {
			c, cmd := accepted(t, at[0], at[1], "")
			peer := proc.TCPPeer(addresses(t, c))
			if peer.Sight != proc.Seen || peer.ID.PID != cmd.Process.Pid || peer.UID != os.Getuid() {
				t.Fatalf("%+v, want process %d", peer, cmd.Process.Pid)
			}
			line := proc.Line(peer.ID.PID)
			if len(line) < 2 || line[0].ID != peer.ID || line[1].PID != os.Getpid() {
				t.Errorf("%+v", line)
			}
			// Who closes its end is gone, and not somebody on another machine.
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			testbed.Until(t, "the process to be gone", func() bool { return !peer.ID.Lives() })
			if peer := proc.TCPPeer(addresses(t, c)); peer.Sight != proc.Gone {
				t.Errorf("%+v", peer)
			}
		})
	}
}

// TestAProgramThatStartsAnotherIsThePeer: until the child is another program, it has all files of its parent.
// One that it has left the connection to is the peer.
func TestAProgramThatStartsAnotherIsThePeer(t *testing.T) {
	c, cmd := accepted(t, "127.0.0.1:0", "127.0.0.1", "if os.fork() == 0: sys.stdin.read(); os._exit(0)")
	if peer := proc.TCPPeer(addresses(t, c)); peer.ID.PID != cmd.Process.Pid {
		t.Errorf("%+v, want process %d", peer, cmd.Process.Pid)
	}
	c, cmd = accepted(t, "127.0.0.1:0", "127.0.0.1", "subprocess.Popen(['cat'], pass_fds=[s.fileno()])")
	if peer := proc.TCPPeer(addresses(t, c)); peer.Sight != proc.Seen || peer.ID.PID <= cmd.Process.Pid {
		t.Errorf("%+v, want a child of process %d", peer, cmd.Process.Pid)
	}
}

func TestAnotherMachineIsElsewhere(t *testing.T) {
	peer := proc.TCPPeer(proc.Addresses{
		Ours: netip.MustParseAddrPort("192.0.2.1:7446"), Theirs: netip.MustParseAddrPort("192.0.2.7:40000"),
	})
	if peer.Sight != proc.Elsewhere {
		t.Errorf("%+v", peer)
	}
}

func TestTheOtherEndOfAUnixSocketIsFound(t *testing.T) {
	path := t.TempDir() + "/s"
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	out, err := (&net.Dialer{}).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = in.Close() }()
	peer, err := proc.UnixPeer(in.(*net.UnixConn))
	if err != nil || peer.ID.PID != os.Getpid() || !peer.ID.Lives() || peer.Sight != proc.Seen {
		t.Errorf("%+v %v", peer, err)
	}
}

func TestANumberThatIsUsedAgainIsAnotherProcess(t *testing.T) {
	own, ok := proc.Read(os.Getpid())
	if !ok || !own.ID.Lives() || own.UID() != os.Getuid() || len(own.Args()) == 0 || proc.Boot() == "" {
		t.Fatalf("%+v", own)
	}
	before := own.ID
	before.Start--
	if before.Lives() {
		t.Error("a process that has ended is taken for the one that has its number now")
	}
	if now := proc.Now(); now < own.Start || proc.SecondsBetween(own.Start, now) > 24*3600 {
		t.Errorf("started at %d, and it is %d", own.Start, now)
	}
}

// A connection whose end is on its way from a process to itself is open, and nobody has it.
func TestAConnectionThatNoProcessHasIsHidden(t *testing.T) {
	c, _ := accepted(t, "127.0.0.1:0", "127.0.0.1", "a, b = socket.socketpair()\n"+
		"socket.send_fds(a, [b'.'], [s.fileno()])\ns.send(b'.')\ns.close()\ns = a")
	testbed.Until(t, "the connection to be nobody's", func() bool {
		return proc.TCPPeer(addresses(t, c)).Sight == proc.Hidden
	})
}
