package harness

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/testbed"
	"signalbox/internal/wire"
	"signalbox/internal/wire/wiretest"
)

// said is a server that answers the first message with its text, and then leaves.
type said chan []byte

func (s said) Write([]byte) error { return nil }

func (s said) Read() ([]byte, error) {
	select {
	case text := <-s:
		return text, nil
	default:
		return nil, io.EOF
	}
}

func (s said) Close() error { return nil }

// An agent may read what it hears with any library: nothing that is not read strictly here may
// reach it, whatever it looks like.
func TestAnAnswerIsCarriedIfItIsReadStrictlyAndElseRefused(t *testing.T) {
	const question = `{"jsonrpc":"2.0","id":"1","method":"ahp/event","params":{"event_type":"pre_action","payload":{}}}`
	words := wiretest.Words{
		Name: "result", Yes: `{"decision":"allow"}`, No: `{"decision":"block","reason":"r"}`,
		Rest: `,"jsonrpc":"2.0","id":"1"`,
	}
	for _, a := range wiretest.Answers(words) {
		t.Run(a.Name, func(t *testing.T) {
			server := make(said, 1)
			server <- []byte(a.Text)
			var out bytes.Buffer
			var dialled bool
			p := newPipe(&out, func(context.Context) (ahp.Stream, error) {
				if dialled {
					return nil, errors.New("gone")
				}
				dialled = true
				return server, nil
			})
			if err := p.run(t.Context(), strings.NewReader(question+"\n")); err != nil {
				t.Fatal(err)
			}
			_, unread := wire.Members([]byte(a.Text))
			carried := strings.HasPrefix(out.String(), a.Text+"\n")
			refused := strings.Contains(out.String(), `"decision":"block"`) && strings.Contains(out.String(), "fail_closed")
			switch {
			case carried != (unread == nil), a.Good && !carried:
				t.Errorf("%q is read with %v, and carried: %q", a.Text, unread, out.String())
			case unread != nil && !refused:
				t.Errorf("%q: nothing was refused: %q", a.Text, out.String())
			}
		})
	}
}

// dumb is a server that takes everything and answers when it is told to.
type dumb chan []byte

func (d dumb) Write([]byte) error { return nil }

func (d dumb) Read() ([]byte, error) {
	text, ok := <-d
	if !ok {
		return nil, io.EOF
	}
	return text, nil
}

func (d dumb) Close() error { return nil }

// A client that waits for ten seconds goes on then, so it hears a denial before. What the server says after
// that comes too late.
func TestAServerThatDoesNotAnswerIsADenialInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := make(dumb)
		in, agent := io.Pipe()
		out := &testbed.Buffer{}
		p := newPipe(out, func(context.Context) (ahp.Stream, error) { return server, nil })
		ended := make(chan error, 1)
		go func() { ended <- p.run(t.Context(), in) }()
		began := time.Now()
		_, _ = io.WriteString(agent, `{"jsonrpc":"2.0","id":"1","method":"ahp/event",`+
			`"params":{"event_type":"pre_action"}}`+"\n")
		for !strings.Contains(out.String(), "fail_closed") && time.Since(began) < time.Minute {
			time.Sleep(100 * time.Millisecond)
		}
		if took := time.Since(began); took > 9900*time.Millisecond || !strings.Contains(out.String(), `"id":"1"`) {
			t.Errorf("after %s: %s", took, out)
		}
		server <- []byte(`{"jsonrpc":"2.0","id":"1","result":{"decision":"allow"}}`)
		server <- []byte(`{"jsonrpc":"2.0","id":"2","result":{}}`)
		synctest.Wait()
		if got := out.String(); strings.Contains(got, "allow") || !strings.Contains(got, `"id":"2"`) {
			t.Errorf("%s", got)
		}
		close(server)
		_ = agent.Close()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// Without a server A3S Code hears block, whatever it asks, also where its question cannot be read.
func TestA3SCodeIsDeniedInTheWordOnWhichItActs(t *testing.T) {
	var out bytes.Buffer
	p := newPipe(&out, func(context.Context) (ahp.Stream, error) { return nil, errors.New("gone") })
	const hello = `{"jsonrpc":"2.0","id":"0","method":"ahp/handshake","params":{"agent_info":{"framework":"a3s-ahp"}}}`
	ask := func(id, rest string) string {
		return "\n" + `{"jsonrpc":"2.0","id":"` + id + `","method":"ahp/event","params":` + rest
	}
	questions := ask("1", `{"event_type":"pre_action"}}`) + ask("2", `{"event_type":"confirmation"}}`) +
		ask("3", `{"event_type":"rate_limit"}}`) + ask("4", `{"event_type":"pre_action","event_type":"pre_action"}}`) +
		ask("5", `{"event_type":`)
	if err := p.run(t.Context(), strings.NewReader(hello+questions+"\n")); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"1", "2", "3", "4", "5"} {
		if !slices.ContainsFunc(strings.Split(out.String(), "\n"), func(line string) bool {
			return strings.Contains(line, `"id":"`+id+`"`) && strings.Contains(line, `"decision":"block"`)
		}) {
			t.Errorf("%s: %s", id, out.String())
		}
	}
}
