package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// Clam is the address of ClamAV's daemon: the path of its socket, or host:port. "" is no scanner.
type Clam string

const (
	clamTime  = 2 * time.Minute // for one file, the connection included
	clamChunk = 64 << 10        // bytes; the daemon's own limit is StreamMaxLength
)

// Scan sends the bytes of r to the daemon and returns the name of the virus it found, "" for none.
// Anything but these two answers is an error: a file that was not scanned is not clean (MSG-77).
func (c Clam) Scan(ctx context.Context, r io.Reader) (found string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clamTime)
	defer cancel()
	network := "tcp"
	if strings.HasPrefix(string(c), "/") {
		network = "unix"
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, string(c))
	if err != nil {
		return "", err
	}
	// A daemon that hangs is left when the time is over.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	// The daemon may answer and hang up before it has read everything, for a file that is too large.
	// Its answer says more than the error of writing, so it is read in any case.
	sendErr := sendStream(conn, r)
	answer, err := io.ReadAll(io.LimitReader(conn, 4<<10))
	if err != nil && len(answer) == 0 {
		return "", fmt.Errorf("no answer: %w", err)
	}
	// The answer is "stream: OK", "stream: NAME FOUND" or an error, ended by a NUL.
	text := strings.TrimPrefix(strings.TrimRight(string(answer), "\x00\n"), "stream: ")
	name, infected := strings.CutSuffix(text, " FOUND")
	switch {
	case infected:
		return name, nil
	case sendErr != nil:
		return "", fmt.Errorf("%w, and the answer was %.200q", sendErr, text)
	case text != "OK":
		return "", fmt.Errorf("the answer was %.200q", text)
	}
	return "", nil
}

// sendStream writes the command INSTREAM: chunks, each with its length before it, and a chunk of
// length 0 at the end.
func sendStream(w io.Writer, r io.Reader) error {
	if _, err := io.WriteString(w, "zINSTREAM\x00"); err != nil {
		return err
	}
	chunk := make([]byte, 4+clamChunk)
	for {
		n, err := io.ReadFull(r, chunk[4:])
		ended := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !ended {
			return err
		}
		if n > 0 {
			binary.BigEndian.PutUint32(chunk, uint32(n))
			if _, err := w.Write(chunk[:4+n]); err != nil {
				return err
			}
		}
		if ended {
			_, err := w.Write(make([]byte, 4))
			return err
		}
	}
}
