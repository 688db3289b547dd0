package proxy

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"signalbox/internal/gate"
	"signalbox/internal/proxy/form"
)

// relay passes a stream on to the client, up to the first tool call that is not allowed. The reply
// so far is prefix followed by kept, byte for byte:
//
//	prefix            kept[:safe]           kept[safe:]
//	the client has it may be sent (flush)   waits for the end of a call, or for a person
//
// Once a gate is due, safe does not grow any more, and the stream is read to its end.
type relay struct {
	x       *exchange
	res     *http.Response
	frames  form.Frames
	machine form.Machine
	prefix  []byte
	kept    []byte
	open    bool // a tool call has begun in kept and is not complete
	safe    int
	ruling  ruling
	broken  string // why the stream cannot go on, "" while it can
	partial bool   // it broke off within a frame
	opened  func() // ends the announcement of a gate; see announceGate
}

// relayStream passes a stream on as it arrives, and judges its tool calls if rules look at them. If
// it returns an approval, the rest of the stream was withheld.
func (x *exchange) relayStream(res *http.Response) (*gate.Approval, error) {
	body := io.Reader(res.Body)
	if coding := strings.ToLower(res.Header.Get("Content-Encoding")); coding == "gzip" {
		z, err := gzip.NewReader(res.Body)
		if err != nil {
			x.broke = true
			x.recordCall(form.Facts{})
			return nil, &gatewayError{"The provider's reply is not coded as it says."}
		}
		body = z
		res.Header.Del("Content-Encoding")
	} else if coding != "" && coding != "identity" {
		if x.rules.tools {
			x.broke = true
			x.recordCall(form.Facts{})
			return nil, &gatewayError{"The provider's reply has a coding that was not asked for, and cannot be judged."}
		}
		defer func() { x.recordCall(form.Facts{Text: x.received}) }()
		return nil, x.copyReply(res)
	}
	l := relays.Get().(*relay)
	l.x, l.res, l.machine, l.opened = x, res, x.form.Machine(), func() {}
	// Whatever was asked for: signs of life, and an answer of ours, must be events now.
	x.q.stream = true
	defer func() { l.opened(); l.recycle() }()
	defer x.out.stopBeat()
	if !x.buffered() {
		l.sendHeader()
	}
	buf := buffers.Get().(*buffer)
	for {
		n, err := body.Read(buf[:])
		if n > 0 && !l.takeBytes(buf[:n]) {
			break
		}
		if err != nil {
			l.end(err)
			break
		}
	}
	buffers.Put(buf)
	l.flush() // the part before a call that was refused
	x.broke = !l.machine.Complete()
	x.recordCall(l.machine.Facts())
	x.out.stopBeat()
	return l.finish()
}

// buffered reports whether nothing of a stream is sent until its end is known: the answer to an async
// call may be a 202, and a reply that the model takes back after a rejection must not have begun.
func (x *exchange) buffered() bool { return x.async || x.set.Feedback && x.rules.tools }

// relays are reused, since their buffers are what a stream costs.
var relays = sync.Pool{New: func() any { return new(relay) }}

// mostRoom is how many bytes of buffers are kept for another stream. Larger ones are left to the
// garbage collector, or one huge reply would occupy memory for ever.
const mostRoom = 256 << 10

// recycle puts the relay back for another stream. Nothing may refer to its buffers any more; finish
// takes them out if they become a stored reply.
func (l *relay) recycle() {
	if cap(l.prefix)+cap(l.kept)+l.frames.Room() <= mostRoom {
		l.frames.Begin()
		*l = relay{prefix: l.prefix[:0], kept: l.kept[:0], frames: l.frames}
		relays.Put(l)
	}
}

// sendHeader sends the provider's status and headers, soon if nothing else is written.
func (l *relay) sendHeader() {
	x := l.x
	x.out.machine = l.machine
	x.writeHeader(l.res.StatusCode, l.res.Header, -1)
	x.out.flushSoon()
}

// takeBytes takes the next bytes and passes on what is allowed. It returns false if the rest need
// not be read. A stream that no rule looks at is passed on at once, frames or not, and read only
// for its usage; frame by frame if that has to be taken out.
func (l *relay) takeBytes(chunk []byte) bool {
	x := l.x
	if !x.rules.tools && !x.buffered() && !x.strip { // not judged: passed on at once, and read for its usage
		if x.out.write(chunk, true) != nil {
			return false
		}
	}
	l.frames.Push(chunk)
	for {
		f, ok := l.frames.Next()
		if !ok {
			break
		}
		if !l.takeFrame(f) {
			return false
		}
		if len(l.prefix) == 0 && !l.flush() { // the first bytes do not wait for others
			return false
		}
	}
	// prefix counts too: the whole reply has to fit into an entry if a call in it needs a person.
	if l.frames.Size()+len(l.prefix)+len(l.kept) > maxKept {
		l.broken = "The provider's reply is too large to be judged."
		return !x.rules.tools
	}
	return l.flush()
}

// takeFrame judges one frame and adds it to kept. It returns false if the rest need not be read: the
// stream cannot be understood, or a call in it is refused.
func (l *relay) takeFrame(f form.Frame) bool {
	x := l.x
	s, err := l.machine.Next(f)
	raw := f.Raw
	if x.strip {
		raw = f.WithoutUsage()
	}
	if !x.rules.tools {
		if x.buffered() || x.strip {
			l.kept = append(l.kept, raw...)
		}
		return true
	}
	if err != nil {
		l.broken = "The provider's reply cannot be judged, because it cannot be read: " + err.Error()
		return false
	}
	if s.Broken && (l.open || len(l.ruling.gates) > 0) {
		// The calls that have begun will never be complete.
		l.kept, l.ruling, l.open = l.kept[:l.safe], ruling{}, false
	}
	l.kept = append(l.kept, raw...)
	l.open = s.Open
	if len(s.Calls) > 0 {
		x.judgeCalls(x.r.Context(), s.Calls, &l.ruling)
		if l.ruling.refusal != nil {
			return false
		}
		// PRX-28: from the first gate on, the reply is read to its end even if the client goes.
		if len(l.ruling.gates) > 0 && x.detach() {
			l.opened = x.announceGate()
		}
	}
	if !l.open && len(l.ruling.gates) == 0 {
		l.safe = len(l.kept)
		l.machine.Sent()
	}
	return true
}

// flush sends what may be sent, and starts signs of life if the client has to wait. It returns false
// if the client has gone and no gate is due, so that nobody needs the rest.
func (l *relay) flush() bool {
	x := l.x
	if x.buffered() {
		l.machine.Sent()
		return true
	}
	if !x.rules.tools {
		l.machine.Sent()
		if len(l.kept) == 0 { // it was passed on as it came
			return true
		}
		text := l.kept
		l.kept = l.kept[:0]
		return x.out.write(text, true) == nil
	}
	gone := false
	if l.safe > 0 {
		x.out.stopBeat()
		l.prefix = append(l.prefix, l.kept[:l.safe]...)
		x.out.given = len(l.prefix)
		gone = x.out.write(l.kept[:l.safe], true) != nil
		l.kept = append(l.kept[:0], l.kept[l.safe:]...)
		l.safe = 0
	}
	if l.open || len(l.ruling.gates) > 0 {
		x.out.startBeat(x.form.Beat)
	}
	return !gone || len(l.ruling.gates) > 0
}

// end takes what is left when the provider has ended the stream, and decides whether it is complete.
// A stream that just stops is broken off, however cleanly the connection was closed (PRX-13).
func (l *relay) end(err error) {
	if f, ok := l.frames.Rest(); ok {
		l.partial = true
		if !l.takeFrame(f) {
			return
		}
	}
	switch {
	// If the client has gone, the read error is ours: the call to the provider was cancelled.
	case !errors.Is(err, io.EOF) && l.x.r.Context().Err() == nil:
		l.broken = "The provider's reply broke off: " + errorText(err)
	case !l.machine.Complete():
		l.broken = "The provider's reply broke off before its end."
	default:
		l.flush()
	}
}

// finish ends the client's stream: complete, refused, broken off, or continued when the gate is
// decided. The withheld reply takes over the buffers.
func (l *relay) finish() (*gate.Approval, error) {
	x := l.x
	switch {
	case l.ruling.refusal != nil:
		return nil, x.refuseCall(*l.ruling.refusal)
	case l.broken != "":
		if !x.rules.tools && x.out.committed && l.partial {
			_ = x.out.write([]byte("\n\n"), false) // ends the frame that was begun
		}
		return nil, &gatewayError{l.broken}
	case len(l.ruling.gates) > 0:
		k := &kept{
			Status: l.res.StatusCode, Header: storedHeader(l.res.Header), Body: append(l.prefix, l.kept...),
			Withheld: len(l.prefix),
		}
		l.kept, l.prefix = nil, nil
		return x.withholdReply(l.ruling.gates, k, l.opened)
	case x.buffered() && !x.out.committed:
		x.writeHeader(l.res.StatusCode, l.res.Header, len(l.kept))
		_ = x.out.write(l.kept, true)
	}
	return nil, nil
}
