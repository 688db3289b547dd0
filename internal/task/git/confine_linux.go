package git

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// programs are the folders and files that git needs to run: itself, its libraries, and where to send what nobody reads.
// Those that there are not are left out.
var programs = []string{"/usr", "/bin", "/lib", "/lib64", "/opt", "/nix/store", "/etc/ld.so.cache"}

const (
	// everything is what the first version of Landlock can refuse: reading, writing, making and removing files, and
	// running them.
	everything = 1<<13 - 1
	reading    = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	onFiles    = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE
)

// Confined reports whether git is kept inside of the repository that it reads, which takes Landlock.
func Confined() bool {
	_, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	return failed == 0
}

// confine calls start, which starts a process that can read the folder and programs, and can write nothing: links
// that lead elsewhere lead nowhere, also those that somebody puts there while it reads. Without Landlock it is
// started as it is.
//
// A thread passes its restrictions on to what it starts. They cannot be lifted again, so the thread ends with the
// goroutine, which stays locked to it.
func confine(dir string, start func() error) error {
	if !Confined() {
		return start()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if err := restrict(dir); err != nil {
			done <- fmt.Errorf("confine git to %s: %w", dir, err)
			return
		}
		done <- start()
	}()
	return <-done
}

// restrict confines this thread.
func restrict(dir string) error {
	handled := unix.LandlockRulesetAttr{Access_fs: everything}
	// Older kernels know fewer fields; the first is the one that counts.
	set, _, failed := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&handled)),
		unsafe.Sizeof(handled.Access_fs), 0)
	if failed != 0 {
		return failed
	}
	defer func() { _ = unix.Close(int(set)) }()
	if err := allow(int(set), dir, reading, true); err != nil {
		return err
	}
	for _, name := range programs {
		if err := allow(int(set), name, reading, false); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	if err := allow(int(set), os.DevNull, onFiles, false); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	if _, _, failed = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, set, 0, 0); failed != 0 {
		return failed
	}
	return nil
}

// allow adds a rule for a file, or for a folder and all below it. With exactly, the name must lead there without
// symbolic links: it was resolved before, and may be another by now.
func allow(set int, name string, access uint64, exactly bool) error {
	at, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(at) }()
	if exactly {
		if is, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", at)); err != nil || is != name {
			return errors.Join(fmt.Errorf("%s is another folder by now", name), err)
		}
	}
	var is unix.Stat_t
	if err := unix.Fstat(at, &is); err != nil {
		return err
	}
	if is.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= onFiles
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(at)}
	_, _, failed := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH,
		uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if failed != 0 {
		return failed
	}
	return nil
}
