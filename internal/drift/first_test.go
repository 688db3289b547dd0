package drift

import (
	"testing"
	"time"
)

// What was before the first look is unknown, so nothing is held against the clock.
func TestTheFirstLookFollows(t *testing.T) {
	m := newMachine(time.Hour)
	c := New(m.machine())
	m.wrong = 0
	if f := turn(c, noDatabase, false); f.Held || f.Jumped != 0 || !c.Now().Equal(m.is()) {
		t.Errorf("found %+v, and it is %s", f, c.Now())
	}
}
