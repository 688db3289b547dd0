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

// Clam is ClamAV's daemon, at the path of its socket or at host:port.
type Clam string

const (
	clamTime  = 2 * time.Minute // for one file
	clamChunk = 64 << 10
)

// Scan sends what r gives to the daemon, and returns the name of what it found, "" for
// nothing. Whatever else it answers is an error: a file that was not scanned is not clean.
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
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer func() { _ = conn.Close() }()
	// A daemon that has enough answers before it has read all; its answer says more than
	// the error of writing on.
	sendErr := sendStream(conn, r)
	answer, err := io.ReadAll(io.LimitReader(conn, 4<<10))
	if err != nil && len(answer) == 0 {
		return "", fmt.Errorf("no answer: %w", err)
	}
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

// sendStream writes a file as the daemon reads it: chunks with their lengths before them,
// and one of no length at the end.
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
