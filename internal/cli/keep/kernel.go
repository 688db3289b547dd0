package keep

import (
	"time"

	"golang.org/x/sys/unix"
)

// kernel is the keyring that the kernel has for the user. It is in no file, and empty after a restart.
type kernel struct{}

// mayAll lets processes of the user find and read a key, also from another session.
const mayAll = 0x3f3f0000

// Put puts a key into the keyring, for as long as it lives.
func (kernel) Put(name string, text []byte, life time.Duration) error {
	id, err := unix.AddKey("user", name, text, unix.KEY_SPEC_USER_KEYRING)
	if err != nil {
		return err
	}
	if err := unix.KeyctlSetperm(id, mayAll); err != nil {
		return err
	}
	_, err = unix.KeyctlInt(unix.KEYCTL_SET_TIMEOUT, id, int(life.Seconds()), 0, 0)
	return err
}

// Get reads a key.
func (kernel) Get(name string) ([]byte, error) {
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", name, 0)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 4096)
	n, err := unix.KeyctlBuffer(unix.KEYCTL_READ, id, text, 0)
	if err != nil || n > len(text) {
		return nil, unix.ENOKEY
	}
	return text[:n], nil
}

// Remove takes a key out.
func (kernel) Remove(name string) {
	if id, err := unix.KeyctlSearch(unix.KEY_SPEC_USER_KEYRING, "user", name, 0); err == nil {
		_, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, unix.KEY_SPEC_USER_KEYRING, 0, 0)
	}
}
