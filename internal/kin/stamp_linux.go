package kin

import (
	"os"
	"syscall"
	"time"
)

// stampOf reads the stamp of a file, empty for none.
func stampOf(path string) (s stamp) {
	var info syscall.Stat_t
	if syscall.Stat(path, &info) == nil {
		s = stamp{inode: info.Ino, size: info.Size, changed: time.Unix(info.Ctim.Sec, info.Ctim.Nsec)}
	}
	return s
}

// Host names this machine. Names of hosts are not enough: containers of one image have the same.
func Host() string {
	name, _ := os.Hostname()
	text, _ := os.ReadFile("/etc/machine-id")
	if len(text) >= 8 {
		name += "/" + string(text[:8])
	}
	return name
}
