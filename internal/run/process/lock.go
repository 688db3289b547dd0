package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"signalbox/internal/fault"
)

// Locks are files by which the runs of this machine take turns on a session (RUN-27).
// The lock is the kernel's: it is released when its holder dies. The files stay; they
// are empty.
type Locks struct{ Dir string }

// UserLocks are the locks that all processes of this user share, whichever server they
// talk to.
func UserLocks() Locks {
	if dir, err := os.UserCacheDir(); err == nil {
		return Locks{filepath.Join(dir, "signalbox", "locks")}
	}
	return Locks{filepath.Join(os.TempDir(), "signalbox-"+strconv.Itoa(os.Getuid()), "locks")}
}

// lockPoll is how often a lock that is taken is tried again. A blocking flock could not
// be interrupted.
const lockPoll = 25 * time.Millisecond

// Take takes the lock of a session, and waits for it as long as ctx lasts.
func (l Locks) Take(ctx context.Context, thread string) (release func(), err error) {
	if err := os.MkdirAll(l.Dir, 0o700); err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot make the folder %s for the locks of runs. Check that this user may write there.", l.Dir)
	}
	sum := sha256.Sum256([]byte(thread))
	path := filepath.Join(l.Dir, hex.EncodeToString(sum[:16])+".lock")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fault.Wrap(err, fault.StoreReadOnly,
			"Cannot open the lock file %s. Check that this user may write there.", path)
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, fault.Wrap(err, fault.StoreReadOnly, "Cannot lock %s.", path)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			_ = f.Close()
			return nil, context.Cause(ctx)
		}
	}
}
