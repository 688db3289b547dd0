package drift

import "time"

// Machine is what a machine knows of time. Tests have their own.
type Machine struct {
	// Read reads the clock, which anybody with the right may set, and how long the machine has been awake since some
	// moment, which nobody can.
	Read func() (clock time.Time, awake time.Duration)
	// Slept is how long it has been asleep since some moment.
	Slept func() time.Duration
}

// Local is this machine.
func Local() Machine {
	begin := time.Now()
	return Machine{
		Read: func() (time.Time, time.Duration) {
			now := time.Now()
			return now, now.Sub(begin)
		},
		Slept: slept,
	}
}
