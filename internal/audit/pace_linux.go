package audit

import (
	"syscall"
	"time"
)

// rusageThread asks for the calling thread; package syscall has no name for it.
const rusageThread = 1

// threadTime is the processor time of the calling thread.
func threadTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
