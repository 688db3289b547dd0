package api

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"strings"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
)

// Pages reads a list to its end. take gets each page and returns the cursor of the next, ""
// after the last.
func Pages[P any](ctx context.Context, c *Client, path string, query Query, take func(P) (next string)) error {
	for {
		var page P
		if err := c.Call(ctx, Find(path, query), &page); err != nil {
			return err
		}
		next := take(page)
		if next == "" {
			return nil
		}
		query["cursor"] = next
	}
}

// Events is a stream of server-sent events.
type Events struct {
	body  io.Closer
	lines *bufio.Scanner
}

// Events opens the stream at the path.
func (c *Client) Events(ctx context.Context, path string) (*Events, error) {
	res, err := c.Do(ctx, Get(path).With("Accept", "text/event-stream")) //nolint:bodyclose // Close does
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 2*ledger.MaxBody) // the body of an entry, and what stands around it
	return &Events{res.Body, lines}, nil
}

// Next waits for an event and returns its kind and data. The server never ends a stream
// by itself, so its end means that the connection or the server is gone: the code is
// Unreachable. Half an event at the end is dropped, since it would be cut off somewhere
// in its JSON.
func (e *Events) Next() (kind, data string, err error) {
	for e.lines.Scan() {
		switch name, value, _ := strings.Cut(e.lines.Text(), ": "); {
		case name == "event":
			kind = value
		case name == "data":
			data = value
		case name == "" && (kind != "" || data != ""):
			return kind, data, nil
		}
	}
	return "", "", fault.Wrap(cmp.Or(e.lines.Err(), io.EOF), Unreachable, "The server's stream of events has ended.")
}

// Close ends the stream.
func (e *Events) Close() { _ = e.body.Close() }
