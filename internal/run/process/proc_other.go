//go:build unix && !linux

package process

import "syscall"

// ownGroup puts the CLI into a process group of its own. Only Linux can kill it when we
// die.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// adoptOrphans does nothing: only Linux has subreapers.
func adoptOrphans() {}

func reap(int) {}

// proc is a process of this machine.
type proc struct {
	pid, group int
	zombie     bool
}

// processes: without /proc, only the group as a whole can be reached.
func processes() []proc { return nil }

// environ is not needed without a list of processes.
func environ(int) string { return "" }
