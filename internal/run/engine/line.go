package engine

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// MaxLine is the longest line that is translated, in bytes. Longer ones are left out
// (RUN-13) and read past without being kept.
const MaxLine = 4 << 20

// Lines reads lines of any length in bounded memory. Only LF ends a line (RUN-10).
type Lines struct{ in *bufio.Reader }

// NewLines reads from r.
func NewLines(r io.Reader) *Lines { return &Lines{in: bufio.NewReaderSize(r, 64<<10)} }

// Next is the next line without its end. The last one needs none (RUN-10). It is valid
// until the next call. tooLong says that the line was longer than MaxLine and is left
// out. The error is that of the reader, io.EOF at the end.
func (l *Lines) Next() (line []byte, tooLong bool, err error) {
	// Parts are joined once at the end; a slice that grew with every part would copy a long
	// line many times.
	var parts [][]byte // of a line that does not fit into the reader's buffer
	size := 0
	for {
		part, err := l.in.ReadSlice('\n')
		if err == nil {
			part = part[:len(part)-1]
			if size == 0 {
				return part, false, nil
			}
		}
		if size += len(part); size > MaxLine {
			parts, tooLong = nil, true
		} else {
			parts = append(parts, bytes.Clone(part))
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && size == 0:
			return nil, false, err
		default: // an error of the reader comes again with the next call
			return bytes.Join(parts, nil), tooLong, nil
		}
	}
}

// Buffered reports whether more was read already, so that a writer need not flush yet.
func (l *Lines) Buffered() bool { return l.in.Buffered() > 0 }
