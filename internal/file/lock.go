package file

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"signalbox/internal/fault"
)

// Lock keeps a second server away from a data folder, until the file is closed. It fails at once if the folder is
// locked. It uses flock and not the existence of a file, because the kernel releases it when the process ends, however
// it ends. The process id in the file is only for the error message.
func Lock(dir string) (*os.File, error) {
	path := filepath.Join(dir, "lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot write to the data folder %s. Give this user the right to, or choose another with --data.", dir)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := os.ReadFile(path)
		_ = f.Close()
		return nil, fault.Wrap(err, fault.Conflict,
			"Another Signalbox (process %s) uses the data folder %s. Stop it, or choose another folder with --data.",
			strings.TrimSpace(string(holder)), dir)
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	return f, nil
}
