package drift

import (
	"time"

	"golang.org/x/sys/unix"
)

// slept is the difference between the clock that counts sleep and the one that does not. Both count since the machine
// was started.
func slept() time.Duration {
	var with, without unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &with) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &without) != nil {
		return 0
	}
	return time.Duration(with.Nano() - without.Nano())
}
