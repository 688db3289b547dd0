package form

import "bytes"

// Frame is one event of a stream. Its slices are valid until the next Push.
type Frame struct {
	Raw  []byte // exactly the bytes of the stream, with the empty line at the end
	Data []byte // nil if the event has none, as a comment
}

// Frames cuts a stream of server-sent events into frames, wherever the bytes were split. Lines end
// with \n, \r\n or \r; a frame ends with an empty line. The frames put together are the stream, byte
// for byte. The zero value is ready for a stream. Each byte is looked at once, however small the
// pieces are.
type Frames struct {
	buf    []byte // what was pushed and not returned
	room   []byte // the memory that buf is a part of
	at     int    // how far buf was looked through
	inside bool   // the line at that place has begun
	begun  bool   // a frame was returned, so a byte order mark is no longer possible
}

// Push adds bytes of the stream. Frames that were returned before are not valid any more.
func (r *Frames) Push(chunk []byte) {
	// Nothing is left over most of the time, and the memory can be used from its beginning.
	if len(r.buf) > 0 {
		r.buf = append(r.buf, chunk...)
		return
	}
	r.room = append(r.room[:0], chunk...)
	r.buf = r.room
}

// Room is how many bytes of memory it holds.
func (r *Frames) Room() int { return cap(r.room) }

// Begin makes it ready for another stream, with the memory that it has.
func (r *Frames) Begin() { *r = Frames{room: r.room} }

// Size is how many bytes wait for the end of their frame.
func (r *Frames) Size() int { return len(r.buf) }

// Next is the next complete frame, false if there is none yet.
func (r *Frames) Next() (Frame, bool) {
	for r.at < len(r.buf) {
		i := lineEnd(r.buf[r.at:])
		if i < 0 {
			r.at, r.inside = len(r.buf), true
			return Frame{}, false
		}
		end := r.at + i
		// An empty line is one that ends where it begins, also if its line end was split.
		empty := i == 0 && !r.inside
		if i > 0 {
			r.at, r.inside = end, true
		}
		if r.buf[end] == '\r' {
			if end+1 == len(r.buf) {
				return Frame{}, false // a \n may follow that belongs to this line end
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

// Rest is what is left at the end of the stream, false if nothing is. By the standard an event without
// its empty line is dropped, but some clients take it for one, so it has to be judged.
func (r *Frames) Rest() (Frame, bool) {
	if len(r.buf) == 0 {
		return Frame{}, false
	}
	r.at = len(r.buf)
	return r.cut(), true
}

// cut takes everything up to at out of the buffer, as a frame.
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

// lineEnd is the index of the first line end, -1 if there is none.
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

// read finds the data of a frame as the HTML standard has it: data lines joined with line breaks. The
// event's name is not read: the providers repeat it in the data, and that is where SDKs look.
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
