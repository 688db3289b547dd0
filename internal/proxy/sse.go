package proxy

import "bytes"

// frame is one event of a stream, with the bytes that it came in.
type frame struct {
	raw   []byte
	event string
	data  []byte // nil when there is none, as in a comment
}

// frames cuts a stream of server-sent events into frames, wherever the bytes were split.
// Lines end with \n, \r\n or \r; a frame ends with an empty line.
type frames struct {
	buf    []byte
	at     int  // as far as was looked
	inside bool // the line that at is in has begun
	begun  bool // the stream has, so that there is no byte order mark any more
}

// push adds bytes. Frames that were returned before are not valid any more.
func (r *frames) push(chunk []byte) { r.buf = append(r.buf, chunk...) }

// size is how much waits for the end of its frame.
func (r *frames) size() int { return len(r.buf) }

// next is the next whole frame, false when there is none yet.
func (r *frames) next() (frame, bool) {
	for r.at < len(r.buf) {
		i := bytes.IndexAny(r.buf[r.at:], "\r\n")
		if i < 0 {
			r.at, r.inside = len(r.buf), true
			return frame{}, false
		}
		end := r.at + i
		empty := i == 0 && !r.inside
		if i > 0 {
			r.at, r.inside = end, true
		}
		if r.buf[end] == '\r' {
			if end+1 == len(r.buf) {
				return frame{}, false // a \n may follow, which belongs to it
			}
			if r.buf[end+1] == '\n' {
				end++
			}
		}
		r.at, r.inside = end+1, false
		if empty {
			return r.cut(), true
		}
	}
	return frame{}, false
}

// rest is what is left at the end of the stream. Some clients take it for a frame.
func (r *frames) rest() (frame, bool) {
	if len(r.buf) == 0 {
		return frame{}, false
	}
	r.at = len(r.buf)
	return r.cut(), true
}

func (r *frames) cut() frame {
	f := frame{raw: r.buf[:r.at:r.at]}
	r.buf, r.at, r.inside = r.buf[r.at:], 0, false
	text := f.raw
	if !r.begun {
		text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		r.begun = true
	}
	f.read(text)
	return f
}

// read finds the fields of a frame, as the HTML standard has them.
func (f *frame) read(text []byte) {
	for len(text) > 0 {
		line := text
		if i := bytes.IndexAny(text, "\r\n"); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			f.event = string(value)
		case "data":
			if f.data != nil {
				f.data = append(append(f.data[:len(f.data):len(f.data)], '\n'), value...)
			} else {
				f.data = value[:len(value):len(value)]
			}
		}
	}
}
