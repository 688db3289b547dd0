package mailbox

import (
	"os"
	"path/filepath"
	"syscall"
)

// lockFile is held by the command that changes a folder.
const lockFile = ".lock"

// lock waits until no other command changes the folder, and keeps others from it until
// unlock. The lock ends with the process, however that ends.
func lock(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(err, dir)
	}
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, unwritable(err, path)
	}
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

// alone does something to the folder that no other command may do at the same time, as the
// folder is then: another may have changed it since it was opened.
func (b *Box) alone(do func() error) error {
	unlock, err := lock(b.Dir)
	if err != nil {
		return err
	}
	defer unlock()
	fresh, err := Open(Where{Dir: b.Dir})
	if err != nil {
		return err
	}
	fresh.now = b.now
	*b = *fresh
	return do()
}
