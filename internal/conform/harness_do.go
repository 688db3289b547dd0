package conform

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/coder/websocket"

	"signalbox/internal/wire"
)

// procedures are the cases that one message cannot show, by their number in the file. A
// number without a procedure is skipped, so a file with more cases can be run.
var procedures = map[int]func(context.Context, *HarnessKit) error{
	// A stream needs a handshake first (AHP-20).
	170: func(ctx context.Context, k *HarnessKit) error { return k.ungreeted(ctx, preAction("r1")) },
	171: func(ctx context.Context, k *HarnessKit) error {
		return k.ungreeted(ctx, []byte(`{"jsonrpc":"2.0","id":"r1","method":"ahp/batch","params":{"events":[]}}`))
	},
	// The handshake of one connection is not good for another (AHP-20).
	173: func(ctx context.Context, k *HarnessKit) error {
		if _, err := k.line(ctx, true); err != nil {
			return err
		}
		return k.ungreeted(ctx, preAction("r1"))
	},
	// A POST needs none (AHP-21).
	174: func(ctx context.Context, k *HarnessKit) error {
		return k.wantPost(ctx, preAction("r1"), nil, http.StatusOK, `"decision":"allow"`)
	},
	// An accepted notification is 204 without a body (AHP-11).
	175: func(ctx context.Context, k *HarnessKit) error {
		return k.wantPost(ctx, []byte(postAction), nil, http.StatusNoContent, "")
	},
	// Other paths and methods, and other content types, are refused as by any server of
	// HTTP.
	177: func(ctx context.Context, k *HarnessKit) error {
		u, err := url.Parse(k.Target)
		if err != nil {
			return err
		}
		u.Path = "/other"
		status, body, _, err := k.http(ctx, http.MethodPost, u.String(), preAction("r1"),
			http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {k.Key}})
		return wantStatus(http.StatusNotFound, status, body, err)
	},
	178: func(ctx context.Context, k *HarnessKit) error {
		status, body, header, err := k.http(ctx, http.MethodGet, k.Target, nil, http.Header{"X-Api-Key": {k.Key}})
		if err == nil && !strings.Contains(header.Get("Allow"), http.MethodPost) {
			err = fmt.Errorf("the header Allow is %q", header.Get("Allow"))
		}
		return wantStatus(http.StatusMethodNotAllowed, status, body, err)
	},
	179: func(ctx context.Context, k *HarnessKit) error {
		status, body, _, err := k.post(ctx, preAction("r1"),
			http.Header{"Content-Type": {"text/plain"}, "X-Api-Key": {k.Key}})
		return wantStatus(http.StatusUnsupportedMediaType, status, body, err)
	},
	// An error of JSON-RPC has the status 200 (AHP-10).
	181: func(ctx context.Context, k *HarnessKit) error {
		return k.wantPost(ctx, []byte(`{"jsonrpc":"2.0","id":"r1","method":"ahp/nope","params":{}}`), nil, http.StatusOK,
			"-32601")
	},
	// A key in either header; the name of the scheme in any case. Without a key, 401.
	182: func(ctx context.Context, k *HarnessKit) error {
		return k.keys(ctx, "X-Api-Key",
			map[string]int{k.Key: http.StatusOK, "wrong": http.StatusUnauthorized, "": http.StatusUnauthorized})
	},
	183: func(ctx context.Context, k *HarnessKit) error {
		return k.keys(ctx, "Authorization",
			map[string]int{
				"Bearer " + k.Key: http.StatusOK, "bearer " + k.Key: http.StatusOK,
				"Bearer wrong": http.StatusUnauthorized,
			})
	},
	// A key in the query of an upgrade, percent-encoded and beside other parameters
	// (AHP-12).
	185: func(ctx context.Context, k *HarnessKit) error {
		return k.upgrades(ctx,
			map[string]int{
				"?api_key=" + encoded(k.Key): http.StatusSwitchingProtocols,
				"?api_key=wrong":             http.StatusUnauthorized, "": http.StatusUnauthorized,
			})
	},
	186: func(ctx context.Context, k *HarnessKit) error {
		return k.upgrades(ctx, map[string]int{"?existing=1&token=" + encoded(k.Key): http.StatusSwitchingProtocols})
	},
	187: func(ctx context.Context, k *HarnessKit) error { // the library sends no Origin
		return k.upgrades(ctx, map[string]int{"?token=" + url.QueryEscape(k.Key): http.StatusSwitchingProtocols})
	},
	// WebSocket as its standard has it: fragments, binary messages, pings.
	189: fragments, 190: binary, 191: ping,
	// Notifications are not answered on a stream, also not rejected ones (AHP-14).
	193: func(ctx context.Context, k *HarnessKit) error {
		l, err := k.line(ctx, true)
		if err != nil {
			return err
		}
		for _, text := range []string{postAction, strings.Replace(postAction, `"depth":0`, `"depth":11`, 1)} {
			if err := l.write([]byte(text)); err != nil {
				return err
			}
			if err := l.silent(ctx); err != nil {
				return err
			}
		}
		return nil
	},
	// Standard output carries messages and nothing else; the end of standard input ends the
	// harness.
	194: onlyJSON, 195: endOfInput,
	// A line that is not UTF-8 is refused, and the stream goes on (AHP-15).
	197: func(ctx context.Context, k *HarnessKit) error {
		l, err := k.line(ctx, true)
		if err != nil {
			return err
		}
		if err := l.ask(ctx, []byte{'{', 0xff, '}'}, harnessExpect{Kind: "error", Code: -32700}); err != nil {
			return err
		}
		return l.ask(ctx, preAction("r1"), allowed)
	},
	198: pipelined,
	// Nobody else may connect (AHP-16).
	199: func(_ context.Context, k *HarnessKit) error {
		at, err := os.Stat(strings.TrimPrefix(k.Target, "unix:"))
		if err == nil && at.Mode().Perm() != 0o600 {
			err = fmt.Errorf("the mode of the socket is %o, and should be 600", at.Mode().Perm())
		}
		return err
	},
}

// postAction is a notification that is accepted.
const postAction = `{"jsonrpc":"2.0","method":"ahp/event","params":{"event_type":"post_action","session_id":"s1",` +
	`"agent_id":"a1","timestamp":"2026-05-01T00:00:00Z","depth":0,"payload":{"status":"ok"}}}`

// allowed is the answer to preAction.
var allowed = harnessExpect{Kind: "result", Result: wire.Raw(`{"decision":"allow"}`)}

// ungreeted sends a request as the first message of a connection, which has to be
// refused (AHP-20).
func (k *HarnessKit) ungreeted(ctx context.Context, text []byte) error {
	l, err := k.connect(ctx)
	if err != nil {
		return err
	}
	defer l.close()
	return l.ask(ctx, text, harnessExpect{Kind: "error", Code: -32001, Contains: "handshake required"})
}

// wantStatus checks the status of a response that came without an error.
func wantStatus(want, got int, body []byte, err error) error {
	if err == nil && got != want {
		err = fmt.Errorf("answered with %d, and should be with %d: %.300s", got, want, body)
	}
	return err
}

// wantPost posts a message and checks status and body. An empty contains wants an empty
// body.
func (k *HarnessKit) wantPost(ctx context.Context, text []byte, header http.Header, status int, contains string) error {
	got, body, _, err := k.post(ctx, text, header)
	if err == nil && (!strings.Contains(string(body), contains) || contains == "" && len(body) > 0) {
		err = fmt.Errorf("the answer should have %q: %.300s", contains, body)
	}
	return wantStatus(status, got, body, err)
}

// keys tries values of a header, each with the status that it has to get.
func (k *HarnessKit) keys(ctx context.Context, name string, want map[string]int) error {
	for value, status := range want {
		header := http.Header{"Content-Type": {"application/json"}}
		if value != "" {
			header.Set(name, value)
		}
		got, body, _, err := k.post(ctx, preAction("r1"), header)
		if err := wantStatus(status, got, body, err); err != nil {
			return err
		}
	}
	return nil
}

// encoded is a key with its first character percent-encoded, which a server has to
// decode (AHP-12).
func encoded(key string) string {
	if key == "" {
		return ""
	}
	return fmt.Sprintf("%%%02X%s", key[0], url.QueryEscape(key[1:]))
}

// upgrades tries queries of the address, each with the status that the upgrade has to
// get.
func (k *HarnessKit) upgrades(ctx context.Context, want map[string]int) error {
	for query, status := range want {
		address := k.Target + query
		conn, res, err := websocket.Dial(ctx, address, nil) //nolint:bodyclose // the connection is the body
		if conn != nil {
			_ = conn.CloseNow()
		}
		if res == nil {
			return err
		}
		if res.StatusCode != status {
			return fmt.Errorf("the upgrade was answered with %d, and should be with %d", res.StatusCode, status)
		}
	}
	return nil
}

// raw is a WebSocket after a handshake, for cases about frames.
func (k *HarnessKit) raw(ctx context.Context) (*websocket.Conn, error) {
	address := k.Target + "?api_key=" + url.QueryEscape(k.Key)
	conn, _, err := websocket.Dial(ctx, address, nil) //nolint:bodyclose // the connection is the body
	if err != nil {
		return nil, err
	}
	if err := conn.Write(ctx, websocket.MessageText, []byte(greeting)); err != nil {
		return conn, err
	}
	_, _, err = conn.Read(ctx)
	return conn, err
}

// fragments sends a request in three frames.
func fragments(ctx context.Context, k *HarnessKit) error {
	conn, err := k.raw(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	w, err := conn.Writer(ctx, websocket.MessageText)
	if err != nil {
		return err
	}
	text := preAction("r1")
	// The cuts are inside of names and values, where a reader that takes frames for
	// messages breaks.
	for _, part := range [][]byte{text[:20], text[20:60], text[60:]} {
		if _, err := w.Write(part); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, got, err := conn.Read(ctx)
	if err != nil {
		return err
	}
	return allowed.check(got)
}

// binary sends a request in a binary message, which has to be ignored, and one that is
// answered (AHP-13).
func binary(ctx context.Context, k *HarnessKit) error {
	conn, err := k.raw(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	if err := conn.Write(ctx, websocket.MessageBinary, preAction("passed-over")); err != nil {
		return err
	}
	if err := conn.Write(ctx, websocket.MessageText, preAction("r1")); err != nil {
		return err
	}
	_, got, err := conn.Read(ctx)
	if err == nil && strings.Contains(string(got), "passed-over") {
		err = fmt.Errorf("a binary message should be passed over: %.300s", got)
	}
	return err
}

// ping waits for a pong with the same payload.
func ping(ctx context.Context, k *HarnessKit) error {
	conn, err := k.raw(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	return conn.Ping(conn.CloseRead(ctx))
}

// onlyJSON sends a program messages that tempt it to write something else than JSON to
// standard output.
func onlyJSON(ctx context.Context, k *HarnessKit) error {
	l, err := k.line(ctx, true)
	if err != nil {
		return err
	}
	for _, text := range []string{
		"nonsense", "[]", string(preAction("r1")),
		`{"jsonrpc":"2.0","id":"x","method":"nope","params":1}`,
	} {
		if err := l.write([]byte(text)); err != nil {
			return err
		}
		if got, err := l.read(ctx); err != nil || !wire.Raw(got).IsValid() {
			return fmt.Errorf("a line on standard output is no JSON: %.300s %w", got, err)
		}
	}
	return nil
}

// endOfInput closes standard input right after a request: the answer has to come all
// the same, and the program has to exit with 0.
func endOfInput(ctx context.Context, k *HarnessKit) error {
	l, err := k.connect(ctx)
	if err != nil {
		return err
	}
	if err := l.greet(ctx); err != nil {
		return err
	}
	if err := l.write(preAction("r1")); err != nil {
		return err
	}
	l.close()
	got, err := l.read(ctx)
	if err != nil {
		return fmt.Errorf("the pending answer is missing: %w", err)
	}
	if err := allowed.check(got); err != nil {
		return err
	}
	if state := l.process.ProcessState; state == nil || state.ExitCode() != 0 {
		return fmt.Errorf("the program should end with 0: %s", state)
	}
	return nil
}

// pipelined writes many requests before it reads. Answers may come in any order, but
// one for each.
func pipelined(ctx context.Context, k *HarnessKit) error {
	l, err := k.line(ctx, true)
	if err != nil {
		return err
	}
	const many = 100
	// Each id is answered exactly once.
	waiting := map[string]bool{}
	for i := range many {
		id := fmt.Sprintf("p%d", i)
		waiting[id] = true
		if err := l.write(preAction(id)); err != nil {
			return err
		}
	}
	for range many {
		text, err := l.read(ctx)
		if err != nil {
			return err
		}
		var got struct {
			ID string `json:"id"`
		}
		if wire.UnmarshalPart(text, &got) != nil || !waiting[got.ID] {
			return fmt.Errorf("an answer to nothing: %.300s", text)
		}
		delete(waiting, got.ID)
	}
	return nil
}
