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
	"signalbox/internal/harness"
	"signalbox/internal/wire"
)

const (
	// lastAnswers is how long outstanding answers are waited for after the agent has closed
	// its side: longer than the server holds a call (AHP-34).
	lastAnswers = 12 * time.Second
	// MaxMessage is the longest message of an agent that is forwarded, in bytes; the
	// server's limit for streams.
	MaxMessage = 16 << 20
	// answerTime is how long the server may take to answer: longer than it holds a call, and shorter than the
	// reference client waits, which goes on after that.
	answerTime = 9500 * time.Millisecond
	// syncEvery is how often a spool gets a new list while the stream stays open.
	syncEvery = time.Hour
)

// pipe forwards lines between an agent and the server, and denies in the server's place
// what cannot be asked (AHP-17).
//
// mu guards what is below it and is never held while a line is written to the agent,
// which has outMu. It is held while the server is dialled, so that only one connection
// is made.
type pipe struct {
	dial func(context.Context) (ahp.Stream, error)
	// spool answers while the server cannot be reached, nil for nobody, and sync brings it and the server together. Both
	// are set before run.
	spool *ahp.Spool
	sync  func(context.Context)

	outMu sync.Mutex
	out   io.Writer

	mu       sync.Mutex
	stream   ahp.Stream
	greeting []byte              // the agent's last handshake, for a connection that is made anew
	a3s      bool                // it says that the agent is A3S Code, which acts on block alone (AHP-54)
	asked    map[string]request  // by id, what is not answered yet
	late     map[string]struct{} // by id, what was denied because the server took too long
	synced   time.Time           // when the spool and the server last were brought together
	idle     chan struct{}       // told when nothing is
	reading  sync.WaitGroup
}

// request is as much of a message as is needed to deny it.
type request struct {
	ID     wire.Raw `json:"id"`
	Method string   `json:"method"`
	Params wire.Raw `json:"params"`
	silent bool     // a handshake of our own
	plain  bool     // of A3S Code
	timer  *time.Timer
}

// newPipe makes a pipe that writes to the agent and dials the server when there is
// something to send.
func newPipe(out io.Writer, dial func(context.Context) (ahp.Stream, error)) *pipe {
	return &pipe{
		dial: dial, out: out, asked: map[string]request{}, late: map[string]struct{}{}, idle: make(chan struct{}, 1),
	}
}

// run forwards messages until the agent closes its side and everything is answered, or
// ctx ends.
func (p *pipe) run(ctx context.Context, in io.Reader) error {
	lines := make(chan []byte)
	failed := make(chan error, 1)
	// Reading standard input cannot be interrupted, so it has a goroutine that the process
	// does not wait for.
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
				p.forward(ctx, line)
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

// drain waits until every request is answered, at most lastAnswers.
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

// readLines hands every line to take, until take wants no more or the input ends. A
// line that is too long is cut, and the server refuses it: the agent then gets an
// answer.
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

// forward forwards one line to the server. If it cannot be reached, a request is denied,
// and a notification is dropped.
func (p *pipe) forward(ctx context.Context, line []byte) {
	var r request
	unread := wire.UnmarshalPart(line, &r)
	if unread != nil {
		r.ID, r.Method = harness.Head(line)
	}
	asks := len(r.ID) > 0 && string(r.ID) != "null"
	stream, failed := p.register(ctx, line, &r, asks)
	switch {
	case stream != nil:
		if err := stream.Write(line); err != nil {
			p.giveUp(stream, ahp.Lost(err))
		}
	case asks:
		p.writeLine(p.without(r, failed, Unasked(failed)))
	case unread != nil:
		p.writeLine([]byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}`))
	}
}

// register returns the stream to the server, or why it cannot be reached, and puts a
// request on the list of those without an answer. Both happen under the lock: a request
// is on the list before its stream can be lost, and so is denied when it is.
func (p *pipe) register(ctx context.Context, line []byte, r *request, asks bool) (ahp.Stream, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	stream, err := p.connect(ctx)
	if stream != nil && p.spool != nil && time.Since(p.synced) > syncEvery {
		p.synced = time.Now()
		p.reading.Go(func() { p.sync(ctx) })
	}
	if asks && r.Method == "ahp/handshake" {
		var params struct {
			Info wire.Raw `json:"agent_info"`
		}
		_ = wire.UnmarshalPart(r.Params, &params) // the server refuses one of another form
		p.greeting, p.a3s = line, harness.FrameworkOf(params.Info) == harness.FrameworkA3S
	}
	r.plain = p.a3s
	if asks && stream != nil {
		delete(p.late, string(r.ID))
		r.timer = time.AfterFunc(answerTime, func() { p.expire(*r) })
		p.asked[string(r.ID)] = *r
	}
	return stream, err
}

// expire denies a request that the server has not answered in time. A later answer is not forwarded.
func (p *pipe) expire(r request) {
	p.mu.Lock()
	waiting, ok := p.asked[string(r.ID)]
	ok = ok && waiting.timer == r.timer
	if ok {
		delete(p.asked, string(r.ID))
		p.late[string(r.ID)] = struct{}{}
	}
	p.mu.Unlock()
	if ok {
		const why = "Signalbox does not answer, so this is refused."
		p.writeLine(p.without(r, ahp.Lost(errors.New(why)), why))
		p.wakeDrain()
	}
}

// connect returns the stream to the server, and makes one if there is none. The caller holds the lock.
func (p *pipe) connect(ctx context.Context) (ahp.Stream, error) {
	if p.stream != nil {
		return p.stream, nil
	}
	stream, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	if p.spool != nil { // what happened without the server comes before what it is asked now
		p.sync(ctx)
		p.synced = time.Now()
	}
	// AHP-17: the server knows nothing of the connection before, and the agent nothing of
	// this one. So the agent's handshake is sent again under an id of our own, and its
	// answer is not forwarded.
	if p.greeting != nil { // the server knows nothing of the one before
		const own = `"signalbox-pipe-handshake"`
		if members, err := wire.Members(p.greeting); err == nil {
			members["id"] = wire.Raw(own)
			again, _ := wire.Marshal(members) // of what was decoded
			p.asked[own] = request{ID: wire.Raw(own), Method: "ahp/handshake", silent: true}
			if err := stream.Write(again); err != nil {
				delete(p.asked, own)
				_ = stream.Close()
				return nil, err
			}
		}
	}
	p.stream = stream
	p.reading.Go(func() { p.listen(stream) })
	return stream, nil
}

// listen forwards answers to the agent until the stream ends. An answer that cannot be
// parsed is not forwarded (AHP-18): the agent may parse it less strictly and read a
// permission. The stream is given up.
func (p *pipe) listen(stream ahp.Stream) {
	for {
		text, err := stream.Read()
		var members map[string]wire.Raw
		if err == nil {
			members, err = wire.Members(text)
		} else {
			err = ahp.Lost(err)
		}
		if err != nil {
			p.giveUp(stream, err)
			return
		}
		if !p.settle(members["id"]) {
			p.writeLine(text)
		}
	}
}

// settle takes a request off the list, and reports whether its answer is not for the agent.
func (p *pipe) settle(id wire.Raw) (silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, known := p.asked[string(id)]
	if known && r.timer != nil {
		r.timer.Stop()
	}
	_, late := p.late[string(id)]
	delete(p.asked, string(id))
	delete(p.late, string(id))
	p.wakeDrain()
	return r.silent || late
}

// wakeDrain wakes drain, which looks for itself.
func (p *pipe) wakeDrain() {
	select {
	case p.idle <- struct{}{}:
	default:
	}
}

// giveUp gives a stream up and denies every request without an answer, at once. A second
// call about the same stream does nothing.
func (p *pipe) giveUp(stream ahp.Stream, why error) {
	p.mu.Lock()
	if p.stream != stream {
		p.mu.Unlock()
		return
	}
	p.stream = nil
	waiting := p.asked
	p.asked, p.late = map[string]request{}, map[string]struct{}{}
	p.mu.Unlock()
	_ = stream.Close()
	for _, r := range waiting {
		if r.timer != nil {
			r.timer.Stop()
		}
		// The agent did not send the repeated handshake, so it hears nothing about it.
		if !r.silent {
			p.writeLine(p.without(r, why, Unasked(why)))
		}
	}
	p.wakeDrain()
}

// hangUp closes the stream when the agent has ended.
func (p *pipe) hangUp() {
	p.mu.Lock()
	stream := p.stream
	p.stream = nil
	p.mu.Unlock()
	if stream != nil {
		_ = stream.Close()
	}
}

// writeLine writes one line to the agent, whole.
func (p *pipe) writeLine(text []byte) {
	p.outMu.Lock()
	defer p.outMu.Unlock()
	_, _ = p.out.Write(append(text, '\n')) // an agent that has gone hears nothing
}

// Unasked is the reason of denials while the server cannot be asked. It is for the model, which should tell
// the person and not try again at once.
func Unasked(why error) string {
	return "Signalbox cannot be asked, so this is refused: " + why.Error() +
		". Start the server with `signalbox up`, or tell the person who runs it."
}

// without is the answer to a request about which the server could not be asked, for the reason why: that of the
// spool, or a refusal in these words.
func (p *pipe) without(r request, why error, words string) []byte {
	if p.spool == nil || r.Method != "ahp/event" && r.Method != "ahp/batch" {
		return r.refusal(words)
	}
	decide := func(raw wire.Raw) ahp.Decision {
		var in struct {
			Type     ahp.Type       `json:"event_type"`
			Session  string         `json:"session_id"`
			Agent    string         `json:"agent_id"`
			Time     string         `json:"timestamp"`
			Depth    uint32         `json:"depth"`
			Payload  wire.Raw       `json:"payload"` // as it is: numbers keep their digits
			Metadata map[string]any `json:"metadata"`
		}
		if wire.UnmarshalPart(raw, &in) != nil || in.Payload == nil {
			return r.refuse(in.Type, words)
		}
		d, err := p.spool.Answer(ahp.Event{
			Type: in.Type, SessionID: in.Session, AgentID: in.Agent, Timestamp: in.Time, Depth: in.Depth, Payload: in.Payload,
			Metadata: in.Metadata,
		}, why)
		if err != nil {
			return r.refuse(in.Type, words)
		}
		return d
	}
	if r.Method == "ahp/event" {
		return r.encode("result", decide(r.Params))
	}
	var params struct {
		Events []wire.Raw `json:"events"`
	}
	_ = wire.UnmarshalPart(r.Params, &params) // the server would refuse what has no events
	decisions := make([]ahp.Decision, len(params.Events))
	for i, e := range params.Events {
		decisions[i] = decide(e)
	}
	return r.encode("result", map[string]any{"decisions": decisions})
}

// refusal is the answer to a request that nobody can be asked about: a denial that the
// agent can decode (AHP-35). A handshake is answered (AHP-17): an agent that gives up
// on its harness would run without one.
func (r request) refusal(why string) []byte {
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
		result = r.refuse(params.Type, why)
	case "ahp/batch":
		decisions := make([]ahp.Decision, len(params.Events))
		for i, e := range params.Events {
			decisions[i] = r.refuse(e.Type, why)
		}
		result = map[string]any{"decisions": decisions}
	case "ahp/query":
		result = map[string]any{"answer": "no", "reason": why}
	default:
		return r.encode("error", map[string]any{"code": -32603, "message": "Handler error: " + why})
	}
	return r.encode("result", result)
}

// refuse denies an event in the words of its type, or in the one on which A3S Code acts.
func (r request) refuse(t ahp.Type, why string) ahp.Decision {
	d := ahp.Refusal(t, why)
	if r.plain && t != ahp.Idle {
		d.Word = "block"
	}
	return d
}

// encode is a response to the request, with a result or an error.
func (r request) encode(member string, value any) []byte {
	text, err := wire.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.ID, member: value})
	if err != nil { // texts and numbers only
		text = []byte(`{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"Handler error"}}`)
	}
	return text
}
