package proc

import (
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// ticks is how many ticks of a process's start make a second. It is the same on every system
// that Go runs on (USER_HZ).
const ticks = 100

// Readable reports whether processes can be looked at.
func Readable() bool {
	_, ok := Read(os.Getpid())
	return ok
}

// Read reads a process; false if there is none with this number.
func Read(pid int) (p Process, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return p, false
	}
	// The name may hold anything, so what is after its end counts.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return p, false
	}
	number := func(i int) int { n, _ := strconv.Atoi(fields[i]); return n }
	p = Process{
		ID: ID{PID: pid}, Parent: number(1), Group: number(2), Session: number(3), Terminal: number(4), Foreground: number(5),
		Dead: fields[0] == "Z" || fields[0] == "X",
	}
	p.Start, err = strconv.ParseUint(fields[19], 10, 64)
	return p, err == nil
}

// Lives reports whether the process is there, and is not another one with its number.
func (id ID) Lives() bool {
	p, ok := Read(id.PID)
	return ok && p.Start == id.Start && !p.Dead
}

// Line is the process and those that started it, up to the first of the machine. It is nil for a process that has
// ended, and for one whose line cannot be read as a whole: half a line would hide who started it.
func Line(pid int) []Process { return wholeLine(pid, Read) }

// wholeLine reads a line again if one of it ends meanwhile: those that it has started have another parent then.
func wholeLine(pid int, read func(int) (Process, bool)) []Process {
	for range 20 {
		p, ok := read(pid)
		if !ok {
			return nil
		}
		line := []Process{p}
		for ok && p.Parent > 0 && len(line) < 1000 {
			var parent Process
			// A number may be used again: then the parent is younger than its child.
			if parent, ok = read(p.Parent); ok && parent.Start <= p.Start {
				line, p = append(line, parent), parent
			} else {
				ok = false
			}
		}
		if ok {
			return line
		}
	}
	return nil
}

// All lists the processes. Those that end meanwhile are left out.
func All() (all []Process) {
	for _, pid := range numbers() {
		if p, ok := Read(pid); ok && !p.Dead {
			all = append(all, p)
		}
	}
	return all
}

// numbers are the processes, the newest first as far as numbers tell.
func numbers() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			pids = append(pids, pid)
		}
	}
	slices.SortFunc(pids, func(a, b int) int { return b - a })
	return pids
}

// Args are the program and its arguments; nil for a process that cannot be read.
func (id ID) Args() []string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/cmdline")
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// Cgroup is the control group of a process, "" if it is not known.
func (id ID) Cgroup() string {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/cgroup")
	return strings.TrimSpace(string(text))
}

// UID is the user of a process, -1 if it is not known. The owner of its folder in /proc would not
// do: that is root for a process that lets nobody look into it.
func (id ID) UID() int {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(id.PID) + "/status")
	_, rest, _ := strings.Cut(string(text), "\nUid:")
	if words := strings.Fields(rest); len(words) > 0 {
		if uid, err := strconv.Atoi(words[0]); err == nil {
			return uid
		}
	}
	return -1
}

// Boot names this run of the machine. Starts of processes can be compared within one.
func Boot() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// Now is this moment, as starts of processes are counted.
func Now() uint64 {
	text, _ := os.ReadFile("/proc/uptime")
	up, _, _ := strings.Cut(string(text), " ")
	seconds, _ := strconv.ParseFloat(up, 64)
	return uint64(seconds * ticks)
}

// SecondsBetween is how long it was from one moment to another.
func SecondsBetween(from, to uint64) float64 {
	if to < from {
		return 0
	}
	return float64(to-from) / ticks
}

// UnixPeer is who connected to a Unix socket.
func UnixPeer(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *syscall.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if failed != nil {
		return Peer{}, failed
	}
	peer := Peer{Sight: Elsewhere, UID: int(cred.Uid)} // its number is 0 in another namespace
	if p, ok := Read(int(cred.Pid)); ok {
		peer.Sight, peer.ID = Seen, p.ID
	}
	return peer, nil
}

// TCPPeer is who has the other end of a TCP connection. A process that has closed its end, or
// whose files cannot be looked at, is told apart from one on another machine: it may hide for a
// reason.
func TCPPeer(a Addresses) Peer {
	a = Addresses{unmapped(a.Ours), unmapped(a.Theirs)}
	p := lookFor(a)
	// Processes are looked at one after another. Meanwhile one may end, and then it is gone and not hidden, or leave its
	// end to one that was looked at before.
	for range 2 {
		if p.Sight == Hidden && (p.UID == os.Getuid() || p.UID == 0) {
			p = lookFor(a)
		}
	}
	return p
}

// lookFor looks for the other end once.
func lookFor(a Addresses) Peer {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		inode, uid, found := findSocket(file, a)
		if !found {
			continue
		}
		if inode == "0" {
			return Peer{Sight: Gone}
		}
		if id, ok := holder(inode); ok {
			return Peer{Sight: Seen, ID: id, UID: uid}
		}
		return Peer{Sight: Hidden, UID: uid}
	}
	if isLocal(a.Theirs.Addr()) {
		return Peer{Sight: Gone}
	}
	return Peer{Sight: Elsewhere}
}

// Listener is who listens on a port of this machine.
func Listener(port uint16) Peer {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, _ := os.ReadFile(file)
		for line := range strings.Lines(string(text)) {
			const listening = "0A"
			f := strings.Fields(line)
			if len(f) < 10 || f[3] != listening {
				continue
			}
			if own, ok := parseAddress(f[1]); !ok || own.Port() != port {
				continue
			}
			if id, ok := holder(f[9]); ok {
				return Peer{Sight: Seen, ID: id}
			}
			return Peer{Sight: Hidden}
		}
	}
	return Peer{Sight: Elsewhere}
}

func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// isLocal reports whether an address is one of this machine.
func isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	all, _ := net.InterfaceAddrs()
	return slices.ContainsFunc(all, func(n net.Addr) bool {
		prefix, err := netip.ParsePrefix(n.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == a
	})
}

// findSocket looks for the socket of the other end in the kernel's list.
func findSocket(file string, a Addresses) (inode string, uid int, found bool) {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 {
			continue
		}
		if own, ok := parseAddress(f[1]); !ok || own != a.Theirs {
			continue
		}
		if other, ok := parseAddress(f[2]); ok && other == a.Ours {
			uid, _ = strconv.Atoi(f[7])
			return f[9], uid, true
		}
	}
	return "", 0, false
}

// parseAddress reads an address of the kernel's list: words of four bytes, each with the lowest
// byte first, and the port.
func parseAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	number, e := strconv.ParseUint(port, 16, 16)
	if err != nil || e != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr.Unmap(), uint16(number)), ok
}

// holder is a process that has the socket open. We are asked first, then the newest: the process
// that has just connected is often among them, and one that a program has left its socket to is newer.
func holder(inode string) (ID, bool) {
	want := "socket:[" + inode + "]"
	for _, pid := range append([]int{os.Getpid()}, numbers()...) {
		p, ok := Read(pid)
		if !ok || !holds(pid, want) {
			continue
		}
		// A program that starts another is two processes for a moment, with the same files open.
		for parent, ok := Read(p.Parent); ok && holds(p.Parent, want) && p.isCopyOf(parent); parent, ok = Read(p.Parent) {
			p = parent
		}
		if holds(p.PID, want) { // by now it may be the other program, which has not
			return p.ID, true
		}
	}
	return ID{}, false
}

// holds reports whether a process has something open, by the name that the kernel gives it.
func holds(pid int, what string) bool {
	dir := "/proc/" + strconv.Itoa(pid) + "/fd"
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	names, _ := f.Readdirnames(-1)
	_ = f.Close()
	return slices.ContainsFunc(names, func(name string) bool {
		at, err := os.Readlink(filepath.Join(dir, name))
		return err == nil && at == what
	})
}

// isCopyOf reports whether a process runs the program of its parent, with the same arguments.
func (id ID) isCopyOf(parent Process) bool {
	exe := func(pid int) string { at, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); return at }
	own := exe(id.PID)
	return own != "" && own == exe(parent.PID) && slices.Equal(id.Args(), parent.Args())
}

// Unreadable are the processes of a user that do not let us see which files they have open.
func Unreadable(uid int) (hidden []Process) {
	for _, p := range All() {
		f, err := os.Open("/proc/" + strconv.Itoa(p.PID) + "/fd")
		if err == nil {
			_ = f.Close()
		} else if p.UID() == uid {
			hidden = append(hidden, p)
		}
	}
	return hidden
}
