//go:build !linux

package git

// Confined is false: only Linux has Landlock.
func Confined() bool { return false }

func confine(_ string, start func() error) error { return start() }
