package drift

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// machine is a machine whose clock a test sets.
type machine struct {
	start                time.Time
	awake, asleep, wrong time.Duration
}

func newMachine(wrong time.Duration) *machine {
	return &machine{start: time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC), wrong: wrong}
}

// is is the right time.
func (m *machine) is() time.Time { return m.start.Add(m.awake + m.asleep) }

func (m *machine) machine() Machine {
	return Machine{
		Read:  func() (time.Time, time.Duration) { return m.is().Add(m.wrong), m.awake },
		Slept: func() time.Duration { return m.asleep },
	}
}

// turn is one look, and what follows.
func turn(c *Clock, database time.Time, seen bool) Finding {
	f := c.look(database, seen)
	c.follow(f)
	return f
}

var noDatabase time.Time

// begin is a clock after its first look.
func begin(m *machine) *Clock {
	c := New(m.machine())
	turn(c, noDatabase, false)
	return c
}

func TestAMachineThatWasAsleepHasNoClockThatJumped(t *testing.T) {
	m := newMachine(0)
	c := begin(m)
	m.asleep += 9 * time.Hour
	if f := turn(c, noDatabase, false); f.Jumped != 0 {
		t.Errorf("jumped by %s", f.Jumped)
	}
	if got := c.Now(); !got.Equal(m.is()) {
		t.Errorf("it is %s, not %s", got, m.is())
	}
}

func TestACorrectionOfLessThanAMinuteIsFollowedAtOnce(t *testing.T) {
	m := newMachine(0)
	c := begin(m)
	m.wrong = -50 * time.Second
	if got := c.Now(); !got.Equal(m.is().Add(m.wrong)) {
		t.Errorf("it is %s", got)
	}
	if f := turn(c, noDatabase, false); f.Jumped != 0 {
		t.Errorf("jumped by %s", f.Jumped)
	}
}

func TestAClockThatIsSetBackIsHeldUntilSomebodyHasSeenIt(t *testing.T) {
	m := newMachine(0)
	c := begin(m)
	m.wrong = -time.Hour
	for range 3 {
		if got := c.Now(); !got.Equal(m.is()) {
			t.Fatalf("it is %s, not %s", got, m.is())
		}
		if f := turn(c, noDatabase, false); !f.Held || f.Jumped != -time.Hour {
			t.Fatalf("found %+v", f)
		}
		m.awake += 2 * time.Second
	}
	if f := turn(c, noDatabase, true); f.Held || f.Jumped != -time.Hour || !c.Now().Equal(m.is().Add(-time.Hour)) {
		t.Errorf("found %+v, and it is %s", f, c.Now())
	}
}

func TestAClockThatIsSetRightAgainIsNoJump(t *testing.T) {
	m := newMachine(0)
	c := begin(m)
	m.wrong = -time.Hour
	turn(c, noDatabase, false)
	m.wrong = 0
	if f := turn(c, noDatabase, false); f.Jumped != 0 || c.held() || c.offset() != 0 || !c.Now().Equal(m.is()) {
		t.Errorf("found %+v, and it is %s", f, c.Now())
	}
}

func TestAJumpForwardIsFollowedAndTakenBack(t *testing.T) {
	m := newMachine(0)
	c := begin(m)
	m.wrong = time.Hour
	if got := c.Now(); !got.Equal(m.is()) {
		t.Errorf("before a look it is %s", got)
	}
	if f := turn(c, noDatabase, false); f.Jumped != time.Hour || !c.Now().Equal(m.is().Add(time.Hour)) {
		t.Errorf("found %+v, and it is %s", f, c.Now())
	}
	m.awake, m.wrong = m.awake+10*time.Minute, 0
	if f := turn(c, noDatabase, false); f.Jumped != -time.Hour || f.Held || !c.Now().Equal(m.is()) {
		t.Errorf("found %+v, and it is %s", f, c.Now())
	}
}

func TestNodesOfADatabaseWorkByItsClock(t *testing.T) {
	m := newMachine(time.Hour)
	c := New(m.machine())
	if f := turn(c, m.is(), false); f.Differs != time.Hour || !c.Now().Equal(m.is()) {
		t.Errorf("found %+v, and it is %s", f, c.Now())
	}
	m.awake, m.wrong = m.awake+time.Minute, -time.Hour // set by somebody, who moves nothing
	if got := c.Now(); !got.Equal(m.is()) {
		t.Errorf("it is %s, not %s", got, m.is())
	}
	if f := turn(c, m.is(), false); f.Jumped != 0 || f.Differs != -time.Hour || !c.Now().Equal(m.is()) {
		t.Errorf("found %+v, and it is %s", f, c.Now())
	}
	m.wrong = 0
	if f := turn(c, m.is(), false); f.Differs != 0 || c.offset() != 0 {
		t.Errorf("found %+v", f)
	}
	if f := turn(c, m.is().Add(-time.Hour), false); !f.Held || !c.Now().Equal(m.is()) {
		t.Errorf("the database's clock was set back: %+v, and it is %s", f, c.Now())
	}
}

// The law of deadlines: however the clock is set, time is never behind what has passed by more than two jumps that are
// too small to be seen and what clocks drift.
func TestNobodyGetsTimeBySettingTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMachine(0)
		c := begin(m)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			m.wrong = time.Duration(rapid.Int64Range(-7200, 7200).Draw(t, "wrong")) * time.Second
			if rapid.Bool().Draw(t, "looks") {
				turn(c, noDatabase, false)
			}
			m.awake += time.Duration(rapid.Int64Range(0, 600).Draw(t, "passes")) * time.Second
			least := m.is().Add(-2*Jump - m.awake/slack)
			if got := c.Now(); got.Before(least) {
				t.Fatalf("it is %s after %s", got, m.is().Sub(m.start))
			}
		}
	})
}
