package meter

import (
	"errors"
	"testing"

	"signalbox/internal/fault"
	"signalbox/internal/wire"
)

// While too much waits to be written down, calls are refused, and told when to come back.
func TestCallsAreRefusedWhenTheLedgerCannotFollow(t *testing.T) {
	r := &Recorder{queued: maxQueued - 1, failed: errors.New("the disk is full")}
	if err := r.CheckRoom(); err != nil {
		t.Error(err)
	}
	r.queued++
	err := r.CheckRoom()
	if e := fault.From(err); e.Code != fault.Overloaded || e.Details[wire.RetryAfter] != 2 {
		t.Errorf("%+v", err)
	}
}
