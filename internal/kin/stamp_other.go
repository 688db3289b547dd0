//go:build unix && !linux

package kin

import "os"

// stampOf reads the stamp of a file, empty for none.
func stampOf(path string) (s stamp) {
	if info, err := os.Stat(path); err == nil {
		s = stamp{size: info.Size(), changed: info.ModTime()}
	}
	return s
}

// Host names this machine.
func Host() string {
	name, _ := os.Hostname()
	return name
}
