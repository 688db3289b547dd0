package drift

import (
	"sync/atomic"
	"time"
)

const (
	// Jump is by how much clocks have to differ to be wrong.
	Jump = time.Minute
	// slack is the part of the time that passes by which clocks may differ more each time: a second in 1000.
	slack = 1000
)

// Clock is the server's time: that of the machine, until that jumps. It is safe for concurrent use.
type Clock struct {
	machine Machine
	course  atomic.Pointer[course]
}

// course is how time is reckoned until the next look.
type course struct {
	offset time.Duration // is added to the machine's clock
	from   time.Time     // our time at a moment
	awake  time.Duration // and how long the machine had been awake and asleep then
	slept  time.Duration
	unsure time.Duration // by how much time has jumped since the start, forward less back
	held   bool          // a jump back was not followed
	first  bool          // there was no look yet, so that nothing is known of what time it should be
}

// New starts with the time of the machine, which is this one unless it says how it is read.
func New(m Machine) *Clock {
	if m.Read == nil {
		m = Local()
	}
	c := &Clock{machine: m}
	now, awake := m.Read()
	c.course.Store(&course{from: now.Round(0), awake: awake, slept: m.Slept(), first: true})
	return c
}

// Now is the time. Between a jump of the machine's clock and the next look it goes on as if there had been none.
func (c *Clock) Now() time.Time {
	clock, awake := c.machine.Read()
	is := c.course.Load()
	now, expected := clock.Add(is.offset), is.from.Add(awake-is.awake)
	if within(now.Sub(expected)) {
		return now
	}
	return expected
}

func within(d time.Duration) bool { return d.Abs() < Jump }

// Finding is what a look at the clocks has found.
type Finding struct {
	Machine time.Time // the machine's clock
	Expects time.Time // our time, as it goes on without a jump
	// Jumped is by how much the clock that is followed differs from that.
	Jumped time.Duration
	// Differs is by how much the machine's clock differs from the database's, where that is followed.
	Differs time.Duration
	// Held says that a jump back is not followed.
	Held bool
	next course
}

// look compares the clocks. database is the database's clock, the zero time where there is none; seen says that an
// operator has seen that time is held. Nothing changes before follow.
func (c *Clock) look(database time.Time, seen bool) Finding {
	is := *c.course.Load()
	clock, awake := c.machine.Read()
	clock = clock.Round(0)
	next := course{awake: awake, slept: c.machine.Slept(), unsure: is.unsure}
	passed := awake - is.awake + next.slept - is.slept
	f := Finding{Machine: clock, Expects: is.from.Add(passed)}
	led := clock
	if !database.IsZero() {
		led = database
		if d := clock.Sub(database); !within(d) {
			f.Differs = d
		}
	}
	off := led.Sub(f.Expects)
	switch {
	case is.first:
		next.from = led
		if f.Differs != 0 {
			next.offset = -f.Differs
		}
		f.next = next
		return f
	case within(off): // small corrections become part of what is expected, a little at a time
		most := passed.Abs() / slack
		next.from = f.Expects.Add(max(-most, min(most, off)))
		if f.Differs != 0 {
			next.offset = -f.Differs
		}
		f.next = next
		return f
	case off > 0 || is.unsure+off > -Jump: // taken together, time was not set back
		next.unsure += off
	case seen:
		next.unsure = 0
	default:
		f.Held, next.held = true, true
		next.from, next.offset = f.Expects, f.Expects.Sub(clock)
		f.Jumped, f.next = off, next
		return f
	}
	next.from, next.offset, f.Jumped = led, led.Sub(clock), off
	if f.Differs == 0 {
		next.offset = 0
	}
	f.next = next
	return f
}

// follow makes time go on as a look has found.
func (c *Clock) follow(f Finding) { c.course.Store(&f.next) }

// held reports whether the clock goes on beside one that was set back.
func (c *Clock) held() bool { return c.course.Load().held }

// offset is by how much the time differs from the machine's clock.
func (c *Clock) offset() time.Duration { return c.course.Load().offset }
