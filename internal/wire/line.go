package wire

import (
	"bufio"
	"errors"
)

// ReadLine reads a line with its line feed, of at most so many bytes without it. Of a longer one, which is read to its
// end, the beginning is kept, and tooLong says so: the lines after it can be read. The error is that of the reader, and
// the line is then what came before it.
func ReadLine(r *bufio.Reader, most int) (line []byte, tooLong bool, err error) {
	for {
		// ReadSlice keeps the memory of a long line at the size of the buffer.
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > most+1; !tooLong {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}
