package proxy

import (
	"sync"
	"time"

	"signalbox/internal/proxy/form"
)

// output writes to the client.
type output struct {
	x         *exchange
	mu        sync.Mutex
	committed bool         // a status was sent
	machine   form.Machine // of the stream that was begun
	given     int          // bytes of the reply that the client has
	deadline  time.Time
	beating   *time.Timer
	again     bool // beating repeats
	gone      error
}

// write sends bytes to the client.
func (o *output) write(b []byte, flush bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeLocked(b, flush)
}

// writeLocked sends bytes to the client. The output is locked.
func (o *output) writeLocked(b []byte, flush bool) error {
	if o.gone != nil {
		return o.gone
	}
	if now := time.Now(); o.deadline.Sub(now) < writeTime/2 {
		o.deadline = now.Add(writeTime)
		_ = o.x.control.SetWriteDeadline(o.deadline)
	}
	_, err := o.x.w.Write(b)
	if err == nil && flush {
		err = o.x.control.Flush()
	}
	o.gone = err
	return err
}

// startBeat begins to send signs of life, until stopBeat.
func (o *output) startBeat(sign []byte) {
	o.schedule(o.x.p.Beat, func() error { return o.writeLocked(sign, true) }, true)
}

// holdOpen is startBeat for a call that waits for its gate. If no status was sent yet, that comes
// first, after a while.
func (o *output) holdOpen(gateID string) {
	if o.committed {
		o.startBeat(o.x.signOfLife())
		return
	}
	sign := o.x.signOfLife()
	o.schedule(o.x.quietTime(), func() error {
		if !o.committed {
			return o.x.sendStatusEarly(gateID)
		}
		return o.writeLocked(sign, true)
	}, true)
}

// flushSoon sends the header in a moment, unless something is written before.
func (o *output) flushSoon() {
	o.schedule(headerTime, func() error { return o.writeLocked(nil, true) }, false)
}

// headerTime is how long the header waits for the first bytes of the body. A shorter time would
// wake a thread for every stream.
const headerTime = 100 * time.Millisecond

// schedule does something after a pause, and if again is set at every beat, until stopBeat.
func (o *output) schedule(pause time.Duration, do func() error, again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.beating != nil {
		if o.again {
			return
		}
		o.beating.Stop()
	}
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.beating == timer && do() == nil && again {
			timer.Reset(o.x.p.Beat)
		}
	})
	o.beating, o.again = timer, again
}

// stopBeat ends the signs of life. None is sent after it has returned.
func (o *output) stopBeat() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.beating != nil {
		o.beating.Stop()
		o.beating = nil
	}
}
