package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/wire"
)

const (
	// lastAnswers is how long those are waited for when the agent has closed its side.
	lastAnswers = 12 * time.Second
	// MaxMessage is the longest message of an agent that is carried, in bytes.
	MaxMessage = 16 << 20
)

// pipe carries lines between an agent and the server, and refuses in the server's place
// what it cannot be asked.
type pipe struct {
	dial func(context.Context) (ahp.Stream, error)

	outMu sync.Mutex
	out   io.Writer

	mu       sync.Mutex
	stream   ahp.Stream
	greeting []byte             // the agent's last handshake, for a connection that is made anew
	asked    map[string]request // by id, what is not answered yet
	idle     chan struct{}      // told when nothing is
	reading  sync.WaitGroup
}

// request is as much of a message as is needed to refuse it.
type request struct {
	ID     wire.Raw `json:"id"`
	Method string   `json:"method"`
	Params wire.Raw `json:"params"`
	silent bool     // a handshake of our own
}

func newPipe(out io.Writer, dial func(context.Context) (ahp.Stream, error)) *pipe {
	return &pipe{dial: dial, out: out, asked: map[string]request{}, idle: make(chan struct{}, 1)}
}

// run carries what comes until the agent closes its side and everything is answered.
func (p *pipe) run(ctx context.Context, in io.Reader) error {
	lines := make(chan []byte)
	failed := make(chan error, 1)
	go func() { // it may be left behind in a read that nobody can end
		defer close(lines)
		failed <- readLines(in, func(line []byte) bool {
			select {
			case lines <- line:
				return true
			case <-ctx.Done():
				return false
			}
		})
	}()
	var err error
	for open := true; open; {
		var line []byte
		select {
		case line, open = <-lines:
			if open {
				p.take(ctx, line)
			} else {
				err = <-failed
			}
		case <-ctx.Done():
			open = false
		}
	}
	p.drain(ctx)
	p.hangUp()
	p.reading.Wait()
	return err
}

// drain waits until nothing is unanswered.
func (p *pipe) drain(ctx context.Context) {
	late := time.After(lastAnswers)
	for {
		p.mu.Lock()
		left := len(p.asked)
		p.mu.Unlock()
		if left == 0 {
			return
		}
		select {
		case <-p.idle:
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// readLines hands on every line; one that is too long ends it.
func readLines(in io.Reader, take func([]byte) bool) error {
	r := bufio.NewReader(in)
	for {
		var line []byte
		for {
			part, err := r.ReadSlice('\n')
			line = append(line, part...)
			if len(line) > MaxMessage+1 {
				line = line[:MaxMessage+1] // the server refuses it as too long
			}
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if len(bytes.TrimSpace(line)) > 0 && !take(bytes.TrimRight(line, "\r\n")) {
				return nil
			}
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			break
		}
	}
}

// take carries one line to the server.
func (p *pipe) take(ctx context.Context, line []byte) {
	var r request
	unread := wire.UnmarshalPart(line, &r)
	asks := unread == nil && len(r.ID) > 0 && string(r.ID) != "null"
	stream := p.register(ctx, line, r, asks)
	switch {
	case stream != nil:
		if stream.Write(line) != nil {
			p.lost(stream)
		}
	case asks:
		p.say(r.refusal())
	case unread != nil:
		p.say([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`))
	}
}

// register is the stream to the server, nil when it cannot be reached. A request is on the list
// before the stream can be lost, and so refused when it is.
func (p *pipe) register(ctx context.Context, line []byte, r request, asks bool) ahp.Stream {
	p.mu.Lock()
	defer p.mu.Unlock()
	stream := p.connect(ctx)
	if asks && stream != nil {
		p.asked[string(r.ID)] = r
	}
	if asks && r.Method == "ahp/handshake" {
		p.greeting = line
	}
	return stream
}

// connect is the stream to the server, nil when it cannot be reached. The caller holds the lock.
func (p *pipe) connect(ctx context.Context) ahp.Stream {
	if p.stream != nil {
		return p.stream
	}
	stream, err := p.dial(ctx)
	if err != nil {
		return nil
	}
	if p.greeting != nil { // the server knows nothing of the one before
		const own = `"signalbox-pipe-handshake"`
		if members, err := wire.Members(p.greeting); err == nil {
			members["id"] = wire.Raw(own)
			again, _ := wire.Marshal(members) // of what was decoded
			p.asked[own] = request{ID: wire.Raw(own), Method: "ahp/handshake", silent: true}
			if stream.Write(again) != nil {
				delete(p.asked, own)
				_ = stream.Close()
				return nil
			}
		}
	}
	p.stream = stream
	p.reading.Go(func() { p.listen(stream) })
	return stream
}

// listen carries answers to the agent until the stream ends. An answer that cannot be read is not
// carried, since the agent may read it less strictly, and take it for a yes: the stream is given up.
func (p *pipe) listen(stream ahp.Stream) {
	for {
		text, err := stream.Read()
		var members map[string]wire.Raw
		if err == nil {
			members, err = wire.Members(text)
		}
		if err != nil {
			p.lost(stream)
			return
		}
		if !p.answered(members["id"]).silent {
			p.say(text)
		}
	}
}

// answered takes a request off the list, and returns it.
func (p *pipe) answered(id wire.Raw) request {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.asked[string(id)]
	delete(p.asked, string(id))
	p.tellIdle()
	return r
}

func (p *pipe) tellIdle() {
	select {
	case p.idle <- struct{}{}:
	default:
	}
}

// lost refuses everything that waits, at once: the server is gone.
func (p *pipe) lost(stream ahp.Stream) {
	p.mu.Lock()
	if p.stream != stream {
		p.mu.Unlock()
		return
	}
	p.stream = nil
	waiting := p.asked
	p.asked = map[string]request{}
	p.mu.Unlock()
	_ = stream.Close()
	for _, r := range waiting {
		if !r.silent {
			p.say(r.refusal())
		}
	}
	p.tellIdle()
}

func (p *pipe) hangUp() {
	p.mu.Lock()
	stream := p.stream
	p.stream = nil
	p.mu.Unlock()
	if stream != nil {
		_ = stream.Close()
	}
}

func (p *pipe) say(text []byte) {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	_, _ = p.out.Write(append(text, '\n')) // an agent that has gone hears nothing
}

const unreachable = "Signalbox cannot be reached, so this is refused. Start the server with `signalbox up`."

// refusal is the answer to a request that nobody can be asked about. A handshake is
// answered: an agent that goes on without its harness would be under none.
func (r request) refusal() []byte {
	var params struct {
		Type   ahp.Type `json:"event_type"`
		Events []struct {
			Type ahp.Type `json:"event_type"`
		} `json:"events"`
	}
	_ = wire.UnmarshalPart(r.Params, &params) // what it does not say is refused as any event is
	var result any
	switch r.Method {
	case "ahp/handshake":
		result = map[string]any{
			"protocol_version": ahp.Version,
			"harness_info": map[string]any{
				"name":    "signalbox (not reachable: everything is refused)",
				"version": ahp.Version, "capabilities": []string{},
			},
		}
	case "ahp/event":
		result = ahp.Refusal(params.Type, unreachable)
	case "ahp/batch":
		decisions := make([]ahp.Decision, len(params.Events))
		for i, e := range params.Events {
			decisions[i] = ahp.Refusal(e.Type, unreachable)
		}
		result = map[string]any{"decisions": decisions}
	case "ahp/query":
		result = map[string]any{"answer": "no", "reason": unreachable}
	default:
		return r.encode("error", map[string]any{"code": -32603, "message": "Handler error: " + unreachable})
	}
	return r.encode("result", result)
}

func (r request) encode(member string, value any) []byte {
	text, err := wire.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ID, member: value})
	if err != nil { // texts and numbers only
		text = []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Handler error"}}`)
	}
	return text
}
