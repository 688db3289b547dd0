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

// relay passes a stream on to the client.
type relay struct {
	x       *exchange
	res     *http.Response
	frames  form.Frames
	machine form.Machine
	prefix  []byte // of the reply, which the client has
	kept    []byte // what follows, and is not for the client yet
	open    bool   // a tool call has begun in what is kept
	safe    int    // how much of what is kept may go on
	said    ruling
	broken  string // why it cannot go on
	partial bool   // it broke off within a frame
	opened  func()
}

// relayStream passes a stream on as it comes, up to the first tool call that is not allowed.
func (x *exchange) relayStream(res *http.Response) (*gate.Approval, error) {
	body := io.Reader(res.Body)
	if coding := strings.ToLower(res.Header.Get("Content-Encoding")); coding == "gzip" {
		z, err := gzip.NewReader(res.Body)
		if err != nil {
			return nil, &gatewayError{"The provider's reply is not coded as it says."}
		}
		body = z
		res.Header.Del("Content-Encoding")
	} else if coding != "" && coding != "identity" {
		if x.rules.tools {
			return nil, &gatewayError{"The provider's reply has a coding that was not asked for, and cannot be judged."}
		}
		defer x.recordCall(form.Facts{})
		return nil, x.copyReply(res)
	}
	l := relays.Get().(*relay)
	l.x, l.res, l.machine, l.opened = x, res, x.form.Machine(), func() {}
	x.q.stream = true
	defer func() { l.opened(); l.recycle() }()
	defer x.out.stopBeat()
	if !x.async {
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
	l.flush() // what is allowed of a stream that is not
	x.recordCall(l.machine.Facts())
	x.out.stopBeat()
	return l.finish()
}

// relays are reused, for their memory.
var relays = sync.Pool{New: func() any { return new(relay) }}

const mostRoom = 256 << 10

// recycle lets another stream use the memory.
func (l *relay) recycle() {
	if cap(l.prefix)+cap(l.kept)+l.frames.Room() <= mostRoom {
		l.frames.Begin()
		*l = relay{prefix: l.prefix[:0], kept: l.kept[:0], frames: l.frames}
		relays.Put(l)
	}
}

// sendHeader sends the status and the header.
func (l *relay) sendHeader() {
	x := l.x
	x.out.machine = l.machine
	if x.out.committed { // a status was sent while the call was held
		return
	}
	x.writeHeader(l.res.StatusCode, l.res.Header, -1)
	x.out.flushSoon()
}

// takeBytes takes the next bytes, and passes on what is allowed. It is false if the rest need not
// be read.
func (l *relay) takeBytes(chunk []byte) bool {
	x := l.x
	if !x.rules.tools && !x.async { // not judged: passed on at once, and read for its usage
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
	if l.frames.Size()+len(l.prefix)+len(l.kept) > maxKept {
		l.broken = "The provider's reply is too large to be judged."
		return !x.rules.tools
	}
	return l.flush()
}

// takeFrame takes one frame. It is false if the rest need not be read.
func (l *relay) takeFrame(f form.Frame) bool {
	x := l.x
	s, err := l.machine.Next(f)
	if !x.rules.tools {
		if x.async {
			l.kept = append(l.kept, f.Raw...)
		}
		return true
	}
	if err != nil {
		l.broken = "The provider's reply cannot be read, and so not be judged: " + err.Error()
		return false
	}
	if s.Broken && (l.open || len(l.said.gates) > 0) {
		// The calls that have begun will never be complete.
		l.kept, l.said, l.open = l.kept[:l.safe], ruling{}, false
	}
	l.kept = append(l.kept, f.Raw...)
	l.open = s.Open
	if len(s.Calls) > 0 {
		x.judgeCalls(x.r.Context(), s.Calls, &l.said)
		if l.said.refusal != nil {
			return false
		}
		// From the first gate on, the reply is read to its end even if the client goes.
		if len(l.said.gates) > 0 && x.detach() {
			l.opened = x.announceGate()
		}
	}
	if !l.open && len(l.said.gates) == 0 {
		l.safe = len(l.kept)
		l.machine.Sent()
	}
	return true
}

// flush passes on what is allowed. It is false if the client has gone and no gate is needed.
func (l *relay) flush() bool {
	x := l.x
	if !x.rules.tools || x.async {
		l.machine.Sent()
		return true
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
	if l.open || len(l.said.gates) > 0 {
		x.out.startBeat(x.form.Beat)
	}
	return !gone || len(l.said.gates) > 0
}

// end checks whether the stream is complete.
func (l *relay) end(err error) {
	if f, ok := l.frames.Rest(); ok {
		l.partial = true
		if !l.takeFrame(f) {
			return
		}
	}
	switch {
	case !errors.Is(err, io.EOF) && l.x.r.Context().Err() == nil:
		l.broken = "The provider's reply broke off: " + reason(err)
	case !l.machine.Whole():
		l.broken = "The provider's reply broke off before its end."
	default:
		l.flush()
	}
}

// finish ends the client's stream: complete, refused, broken off, or to be continued when the gate
// is decided.
func (l *relay) finish() (*gate.Approval, error) {
	x := l.x
	switch {
	case l.said.refusal != nil:
		return nil, x.refuseCall(*l.said.refusal)
	case l.broken != "":
		if !x.rules.tools && x.out.committed && l.partial {
			_ = x.out.write([]byte("\n\n"), false) // ends the frame that was begun
		}
		return nil, &gatewayError{l.broken}
	case len(l.said.gates) > 0:
		k := &kept{
			Status: l.res.StatusCode, Header: storedHeader(l.res.Header), Body: append(l.prefix, l.kept...),
			Withheld: len(l.prefix),
		}
		l.kept, l.prefix = nil, nil
		return x.withholdReply(l.said.gates, k, l.opened)
	case x.async && !x.out.committed:
		x.writeHeader(l.res.StatusCode, l.res.Header, len(l.kept))
		_ = x.out.write(l.kept, true)
	}
	return nil, nil
}
