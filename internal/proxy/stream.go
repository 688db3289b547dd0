package proxy

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"
)

// relay is a stream on its way to the client.
type relay struct {
	x       *exchange
	res     *http.Response
	frames  frames
	machine machine
	prefix  []byte // of the reply, which the client has
	kept    []byte // what follows, and is not for the client yet
	open    bool   // a call has begun in what is kept
	safe    int    // how much of what is kept may go on
	said    ruling
	broken  string // why it cannot go on
	partial bool   // it broke off within a frame
	landed  func()
}

// stream gives a stream on as it comes, up to the first call that may not go on.
func (x *exchange) stream(res *http.Response) (*hold, error) {
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
		defer x.record(facts{})
		return nil, x.copy(res)
	}
	l := &relay{x: x, res: res, machine: x.form.machine(), landed: func() {}}
	x.q.stream = true
	defer func() { l.landed() }()
	defer x.out.still()
	idle := time.AfterFunc(upstreamIdle, x.out.upstream.cancel)
	defer idle.Stop()
	if !x.async {
		l.begin()
	}
	buf := make([]byte, 8<<10)
	for {
		n, err := body.Read(buf)
		idle.Reset(upstreamIdle)
		if n > 0 && !l.take(buf[:n]) {
			break
		}
		if err != nil {
			l.end(err)
			break
		}
	}
	idle.Stop()
	x.record(l.machine.facts())
	l.flush() // what may go on of a stream that may not
	x.out.still()
	return l.finish()
}

// begin sends the status.
func (l *relay) begin() {
	x := l.x
	x.out.machine = l.machine
	if x.out.committed { // it was held before it was sent
		return
	}
	x.reply(l.res.StatusCode, l.res.Header, -1)
	x.out.soon()
}

// take takes bytes in, and gives on what may be. It is false when the rest does not matter.
func (l *relay) take(chunk []byte) bool {
	x := l.x
	if !x.rules.tools && !x.async { // nobody judges: as it comes, and read for what it took
		if x.out.write(chunk, true) != nil {
			return false
		}
	}
	l.frames.push(chunk)
	for {
		f, ok := l.frames.next()
		if !ok {
			break
		}
		if !l.frame(f) {
			return false
		}
		if len(l.prefix) == 0 && !l.flush() { // the first bytes do not wait for others
			return false
		}
	}
	if l.frames.size()+len(l.prefix)+len(l.kept) > maxKept {
		l.broken = "The provider's reply is too large to be judged."
		return !x.rules.tools
	}
	return l.flush()
}

// frame takes one frame in. It is false when the rest does not matter.
func (l *relay) frame(f frame) bool {
	x := l.x
	s, err := l.machine.next(f)
	if !x.rules.tools {
		if x.async {
			l.kept = append(l.kept, f.raw...)
		}
		return true
	}
	if err != nil {
		l.broken = "The provider's reply cannot be read, and so not be judged: " + err.Error()
		return false
	}
	if s.broken && (l.open || len(l.said.gates) > 0) {
		// What was begun will never be whole, and nobody needs it any more.
		l.kept, l.said, l.open = l.kept[:l.safe], ruling{}, false
	}
	l.kept = append(l.kept, f.raw...)
	l.open = s.open
	if len(s.calls) > 0 {
		x.judge(x.r.Context(), s.calls, &l.said)
		if l.said.refusal != nil {
			return false
		}
		// From the first gate on the reply is read to its end whatever becomes of the client.
		if len(l.said.gates) > 0 && x.out.upstream.detach() {
			l.landed = x.takeOff()
		}
	}
	if !l.open && len(l.said.gates) == 0 {
		l.safe = len(l.kept)
		l.machine.sent()
	}
	return true
}

// flush gives on what may be. It is false when the client is gone and nothing waits for it.
func (l *relay) flush() bool {
	x := l.x
	if !x.rules.tools || x.async {
		l.machine.sent()
		return true
	}
	gone := false
	if l.safe > 0 {
		x.out.still()
		l.prefix = append(l.prefix, l.kept[:l.safe]...)
		x.out.given = len(l.prefix)
		gone = x.out.write(l.kept[:l.safe], true) != nil
		l.kept = append(l.kept[:0], l.kept[l.safe:]...)
		l.safe = 0
	}
	if l.open || len(l.said.gates) > 0 {
		x.out.beat(x.form.beat)
	}
	return !gone || len(l.said.gates) > 0
}

// end looks at how the stream has ended.
func (l *relay) end(err error) {
	if f, ok := l.frames.rest(); ok {
		l.partial = true
		if !l.frame(f) {
			return
		}
	}
	switch {
	case !errors.Is(err, io.EOF) && l.x.r.Context().Err() == nil:
		l.broken = "The provider's reply broke off: " + reason(err)
	case !l.machine.whole():
		l.broken = "The provider's reply broke off before its end."
	default:
		l.flush()
	}
}

// finish ends the client's stream: as it came, with what was withheld, or with why not.
func (l *relay) finish() (*hold, error) {
	x := l.x
	switch {
	case l.said.refusal != nil:
		return nil, x.refuse(*l.said.refusal)
	case l.broken != "":
		if !x.rules.tools && x.out.committed && l.partial {
			_ = x.out.write([]byte("\n\n"), false) // ends the frame that was begun
		}
		return nil, &gatewayError{l.broken}
	case len(l.said.gates) > 0:
		k := &kept{Status: l.res.StatusCode, Header: storedHeader(l.res.Header), Body: append(l.prefix, l.kept...), Withheld: len(l.prefix)}
		l.kept, l.prefix = nil, nil
		return x.withhold(l.said.gates, k, l.landed)
	case x.async && !x.out.committed:
		x.reply(l.res.StatusCode, l.res.Header, len(l.kept))
		_ = x.out.write(l.kept, true)
	}
	return nil, nil
}
