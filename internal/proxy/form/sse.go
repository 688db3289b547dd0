package form

import "bytes"

// Frame is one event of a stream, with the bytes that it came in.
type Frame struct {
	Raw  []byte
	Data []byte // nil when there is none, as in a comment
}

// Frames cuts a stream of server-sent events into frames, wherever the bytes were split.
// Lines end with \n, \r\n or \r; a frame ends with an empty line.
type Frames struct {
	buf    []byte
	room   []byte // what buf lies in
	at     int    // as far as was looked
	inside bool   // the line that at is in has begun
	begun  bool   // the stream has, so that there is no byte order mark any more
}

// Push adds bytes. Frames that were returned before are not valid any more.
func (r *Frames) Push(chunk []byte) {
	if len(r.buf) > 0 {
		r.buf = append(r.buf, chunk...)
		return
	}
	r.room = append(r.room[:0], chunk...)
	r.buf = r.room
}

// Room is how much memory it has.
func (r *Frames) Room() int { return cap(r.room) }

// Begin makes it ready for another stream, in the room that it has.
func (r *Frames) Begin() { *r = Frames{room: r.room} }

// Size is how much waits for the end of its frame.
func (r *Frames) Size() int { return len(r.buf) }

// Next is the next whole frame, false when there is none yet.
func (r *Frames) Next() (Frame, bool) {
	for r.at < len(r.buf) {
		i := lineEnd(r.buf[r.at:])
		if i < 0 {
			r.at, r.inside = len(r.buf), true
			return Frame{}, false
		}
		end := r.at + i
		empty := i == 0 && !r.inside
		if i > 0 {
			r.at, r.inside = end, true
		}
		if r.buf[end] == '\r' {
			if end+1 == len(r.buf) {
				return Frame{}, false // a \n may follow, which belongs to it
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
	return Frame{}, false
}

// Rest is what is left at the end of the stream. Some clients take it for a frame.
func (r *Frames) Rest() (Frame, bool) {
	if len(r.buf) == 0 {
		return Frame{}, false
	}
	r.at = len(r.buf)
	return r.cut(), true
}

func (r *Frames) cut() Frame {
	f := Frame{Raw: r.buf[:r.at:r.at]}
	r.buf, r.at, r.inside = r.buf[r.at:], 0, false
	text := f.Raw
	if !r.begun {
		text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		r.begun = true
	}
	f.read(text)
	return f
}

// lineEnd is where the first line ends, -1 when it does not.
func lineEnd(text []byte) int {
	i := bytes.IndexByte(text, '\n')
	line := text
	if i >= 0 {
		line = text[:i]
	}
	if j := bytes.IndexByte(line, '\r'); j >= 0 {
		return j
	}
	return i
}

// read finds the data of a frame, as the HTML standard has it. The kind of an event stands
// in the data, too, and it is there that clients look.
func (f *Frame) read(text []byte) {
	for len(text) > 0 {
		line := text
		if i := lineEnd(text); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch {
		case string(name) != "data":
		case f.Data != nil:
			f.Data = append(append(f.Data[:len(f.Data):len(f.Data)], '\n'), value...)
		default:
			f.Data = value[:len(value):len(value)]
		}
	}
}
