package harness

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"signalbox/client/ahp"
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
