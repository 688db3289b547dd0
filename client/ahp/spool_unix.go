//go:build unix

package ahp

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// checkFolder refuses a folder that others could have put there, or could change.
func checkFolder(folder string) error {
	info, err := os.Lstat(folder)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", folder)
	case !ok || int(stat.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s should be a folder of this user that nobody else can write to (chmod 700)", folder)
	}
	return nil
}

// openFile opens a file of the spool: a regular file of this user, with one name, that only the user can change. A
// link could lead to a file of somebody else, which would then be written to.
func openFile(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return nil, fmt.Errorf("%w: %s is a link", errSpoolChanged, name)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil {
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok || !info.Mode().IsRegular() || int(stat.Uid) != os.Geteuid() || stat.Nlink > 1 || info.Mode().Perm()&0o022 != 0 {
			err = fmt.Errorf("%w: %s should be a file of this user, without links, that nobody else can write to",
				errSpoolChanged, name)
		}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// tryLock takes the lock of a file, unless another process has it.
func tryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return err == nil, err
}

// syncFolder has the names of a folder on disk.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	return f.Sync()
}
