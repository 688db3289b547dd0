package conform

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"signalbox/client/ahp"
)

// line is one connection to a harness. A goroutine reads it into got until it ends; why
// is set before ended is closed.
type line struct {
	stream  ahp.Stream
	process *exec.Cmd // nil unless one was started
	got     chan []byte
	ended   chan struct{}
	why     error
	close   func()
}

// greeting is a handshake.
const greeting = `{"jsonrpc":"2.0","id":"greeting","method":"ahp/handshake","params":{"protocol_version":"2.4",` +
	`"agent_info":{"framework":"conform","version":"0","capabilities":[]},"session_id":"s1",` +
	`"agent_id":"a1"}}`

// preAction is a request that has to be allowed.
func preAction(id string) []byte {
	return fmt.Appendf(
		nil, `{"jsonrpc":"2.0","id":%q,"method":"ahp/event","params":{"event_type":"pre_action","session_id":"s1",`+
			`"agent_id":"a1","timestamp":"2026-05-01T00:00:00Z","depth":0,"payload":{}}}`, id,
	)
}

// line is a connection. Cases after a handshake share one, as long as it lives; the
// caller closes any other.
func (k *HarnessKit) line(ctx context.Context, greeted bool) (*line, error) {
	if !greeted {
		return k.connect(ctx)
	}
	if k.shared != nil {
		select {
		// Some cases make a harness close the connection.
		case <-k.shared.ended: // the case before has cost it
			k.shared.close()
			k.shared = nil
		default:
			return k.shared, nil
		}
	}
	l, err := k.connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.greet(ctx); err != nil {
		l.close()
		return nil, err
	}
	k.shared = l
	return l, nil
}

// connect opens a connection, or starts the program.
func (k *HarnessKit) connect(ctx context.Context) (*line, error) {
	// Room for the answers of pipelined, which reads only after it has written everything.
	l := &line{got: make(chan []byte, 1024), ended: make(chan struct{})}
	var err error
	if k.transport == overStdio {
		// A command is split at spaces and run without a shell; a path with spaces needs a
		// script.
		words := strings.Fields(k.Target)
		// The process outlives the context of the case: it serves the cases after it too.
		l.process = exec.CommandContext(context.WithoutCancel(ctx), words[0], words[1:]...)
		l.process.Stderr = os.Stderr
		l.stream, err = ahp.StartStream(l.process)
	} else {
		l.stream, err = ahp.OpenStream(ctx, k.Target, k.Key)
	}
	if err != nil {
		return nil, err
	}
	l.close = sync.OnceFunc(func() { _ = l.stream.Close(); <-l.ended })
	go func() {
		defer close(l.ended)
		for {
			text, err := l.stream.Read()
			if err != nil {
				l.why = err
				return
			}
			l.got <- text
		}
	}()
	return l, nil
}

// write sends one message.
func (l *line) write(text []byte) error { return l.stream.Write(text) }

// read is the next message. What has arrived is returned also after the end of the
// stream.
func (l *line) read(ctx context.Context) ([]byte, error) {
	select {
	case text := <-l.got:
		return text, nil
	default:
	}
	select {
	case text := <-l.got:
		return text, nil
	case <-l.ended:
		return nil, fmt.Errorf("the stream has ended: %w", l.why)
	case <-time.After(answerTime):
		return nil, errors.New("no answer")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// greet makes a handshake.
func (l *line) greet(ctx context.Context) error {
	if err := l.write([]byte(greeting)); err != nil {
		return err
	}
	text, err := l.read(ctx)
	if err != nil {
		return fmt.Errorf("the handshake: %w", err)
	}
	return harnessExpect{Kind: "result", Keys: []string{"harness_info"}}.check(text)
}

// silent checks that the message before is not answered. It sends a request whose
// answer has to come next, so that it need not wait for something that does not come.
func (l *line) silent(ctx context.Context) error {
	if err := l.write([]byte(strings.Replace(greeting, `"greeting"`, `"probe"`, 1))); err != nil {
		return err
	}
	text, err := l.read(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), `"probe"`) {
		return fmt.Errorf("nothing should be said to it: %.300s", text)
	}
	return nil
}

// ask sends a request and checks the answer.
func (l *line) ask(ctx context.Context, text []byte, e harnessExpect) error {
	if err := l.write(text); err != nil {
		return err
	}
	got, err := l.read(ctx)
	if err != nil {
		return err
	}
	return e.check(got)
}

// post sends a message over HTTP. A header that is not nil replaces the key and the
// content type.
func (k *HarnessKit) post(ctx context.Context, text []byte, header http.Header) (status int, body []byte,
	got http.Header, err error,
) {
	if header == nil {
		header = http.Header{"Content-Type": {"application/json"}}
		if k.Key != "" {
			header.Set("X-API-Key", k.Key)
		}
	}
	return k.http(ctx, http.MethodPost, k.Target, text, header)
}

// http makes one call with a client of its own, so that no case sees the connection of
// another.
func (k *HarnessKit) http(ctx context.Context, method, address string, text []byte, header http.Header) (status int,
	body []byte, got http.Header, err error,
) {
	client := newHTTP(answerTime)
	defer client.CloseIdleConnections()
	r, err := call(ctx, client, method, address, text, header)
	return r.http, r.body, r.header, err
}
