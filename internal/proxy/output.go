package proxy

import (
	"sync"
	"time"

	"signalbox/internal/proxy/form"
)

// output writes to the client, for the handler and for the timer that sends signs of life. mu orders
// the two.
type output struct {
	x         *exchange
	mu        sync.Mutex
	committed bool         // a status was sent
	machine   form.Machine // of the stream that was begun, nil if the answer is not a stream
	given     int          // bytes of the provider's reply that the client has
	deadline  time.Time    // for writing; renewed by writeLocked
	beating   *time.Timer  // the next scheduled write, nil for none
	again     bool         // beating repeats
	gone      error        // the first write that failed; nothing is written after it
}

// write sends bytes to the client, at once if flush is set. After an error every write fails with it.
func (o *output) write(b []byte, flush bool) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writeLocked(b, flush)
}

// writeLocked is write for a caller that holds mu. The deadline is moved only when half of it is
// used up, since moving it costs a call into the poller.
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

// startBeat sends a sign of life with every beat, until stopBeat.
func (o *output) startBeat(sign []byte) {
	o.schedule(o.x.p.Beat, func() error { return o.writeLocked(sign, true) }, true)
}

// flushSoon sends the header in a moment, unless something is written before: a client that shows
// that the model is working should see the status before the first words.
func (o *output) flushSoon() {
	o.schedule(headerTime, func() error { return o.writeLocked(nil, true) }, false)
}

// headerTime is how long the header waits for the first bytes of the body. A shorter time would
// wake a thread for every stream.
const headerTime = 100 * time.Millisecond

// schedule calls do after a pause, with mu held, and with again at every beat after that, until
// stopBeat or an error. A repeating schedule is not replaced. A timer that was stopped too late to
// keep its function from running finds that it is not beating any more.
func (o *output) schedule(pause time.Duration, do func() error, again bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Signs of life that are running go on; a header that was to be flushed soon gives way to them.
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

// stopBeat ends the signs of life. None is sent after it has returned, so that none can come between
// two parts of a reply.
func (o *output) stopBeat() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.beating != nil {
		o.beating.Stop()
		o.beating = nil
	}
}
