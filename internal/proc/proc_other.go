//go:build unix && !linux

package proc

import (
	"errors"
	"net"
)

// Readable: without /proc nothing is known about other processes.
func Readable() bool { return false }

// Read knows no process.
func Read(int) (Process, bool) { return Process{}, false }

// Lives is always false.
func (id ID) Lives() bool { return false }

// Line is empty.
func Line(int) []Process { return nil }

// All is empty.
func All() []Process { return nil }

// Args are not known.
func (id ID) Args() []string { return nil }

// Cgroup is not known.
func (id ID) Cgroup() string { return "" }

// UID is not known.
func (id ID) UID() int { return -1 }

// Boot is not known.
func Boot() string { return "" }

// Now is not known.
func Now() uint64 { return 0 }

// SecondsBetween is not known.
func SecondsBetween(uint64, uint64) float64 { return 0 }

// UnixPeer is not known, so that nobody is let in by it.
func UnixPeer(*net.UnixConn) (Peer, error) {
	return Peer{}, errors.New("this system does not tell who connected")
}

// TCPPeer knows nobody.
func TCPPeer(Addresses) Peer { return Peer{} }

// Listener knows nobody.
func Listener(uint16) Peer { return Peer{} }

// Unreadable is empty.
func Unreadable(int) []Process { return nil }
