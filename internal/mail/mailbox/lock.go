package mailbox

import (
	"os"
	"path/filepath"
	"syscall"
)

// lockFile is locked by the process that changes the folder. The bash clients do not know it.
const lockFile = ".lock"

// lock waits until no other process changes the folder, and holds the lock until unlock. The system
// releases it with the process, however that ends. It is not re-entrant.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(err, dir)
	}
	path := filepath.Join(dir, lockFile)
	// The file stays: removing it would let two processes hold locks on two files of the same name.
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unwritable(err, path)
	}
	// A signal may interrupt the wait.
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if err != syscall.EINTR { //nolint:errorlint // it is a number, and never wrapped
			break
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, unwritable(err, path)
	}
	return func() { _ = f.Close() }, nil
}

// withLock runs do with the lock held, after reading the folder again: another process may have changed
// it since b was opened, and writing an old registration back would lose a key.
func (b *Box) withLock(do func() error) error {
	unlock, err := lock(b.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	fresh, err := Open(Where{Dir: b.Dir})
	if err != nil {
		return err
	}
	// The clock of tests.
	fresh.now = b.now
	*b = *fresh
	return do()
}
