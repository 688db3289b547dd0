// Package proc reads what the kernel says about the processes of this machine: who is at the
// other end of a connection, who started a process, and when. A process is known by its number and
// its start, since numbers are used again.
//
// It reads /proc on Linux. Elsewhere it knows nothing, and says so. It must not know agents: what
// follows from a process belongs to package kin.
package proc

import "net/netip"

// ID is one process for as long as the machine is up: its number, and its start in ticks since
// the boot. A zero ID is no process.
type ID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"`
}

// Process is a process at the moment at which it was read.
type Process struct {
	ID
	Parent     int // 0 for the first process, and for one that came from outside of the namespace
	Group      int
	Session    int
	Terminal   int // 0 for none
	Foreground int // the group that the terminal listens to
	Dead       bool
}

// Sight is how much is known about the other end of a connection.
type Sight int

const (
	// Elsewhere is another machine, or another namespace.
	Elsewhere Sight = iota
	// Seen is a process of this machine.
	Seen
	// Hidden is a process of this machine whose files this user cannot look at, or nobody: an end of a connection can
	// be on its way from one process to another, and open all the same.
	Hidden
	// Gone is a process of this machine that has closed its end already.
	Gone
)

// Peer is who is at the other end of a connection.
type Peer struct {
	Sight Sight
	ID    ID  // if Seen
	UID   int // if Seen or Hidden
}

// Addresses are the two ends of a TCP connection.
type Addresses struct{ Ours, Theirs netip.AddrPort }
