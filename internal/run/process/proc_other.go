//go:build unix && !linux

package process

import "syscall"

func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func adoptOrphans() {}

func reap(int) {}

// proc is a process of this machine.
type proc struct {
	pid, group int
	zombie     bool
}

// processes: without /proc, only the group as a whole can be reached.
func processes() []proc { return nil }

func environ(int) string { return "" }
