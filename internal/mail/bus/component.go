package bus

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"signalbox/internal/mail/amp"
	"signalbox/internal/wire"
)

// component is a process on the bus. The exported fields are what it registered with, and never
// change.
type component struct {
	Name         string   `json:"name"`
	Role         string   `json:"role"`
	Capabilities []string `json:"capabilities"`
	Version      string   `json:"version"`

	connected time.Time
	heard     time.Time   // its last heartbeat; guarded by Bus.mu
	out       chan []byte // lines to write to it; nil for the gateway, which is inside the bus
}

const (
	// maxWaiting is how many lines wait for a component that reads slowly; more are dropped.
	maxWaiting = 256
	// perSecond is how many lines a component may send in a second, and at once.
	perSecond = 5000
)

// enqueue queues a line for the component, false if its queue is full. It never waits.
func (c *component) enqueue(line []byte) bool {
	select {
	case c.out <- line:
		return true
	default:
		return false
	}
}

// The params of the notifications that the bus sends: letter is a message or a publication, notice an
// event.
type (
	letter struct {
		Topic     string   `json:"topic,omitzero"`
		From      string   `json:"from"`
		Payload   wire.Raw `json:"payload"`
		Timestamp string   `json:"timestamp"`
	}
	notice struct {
		Event     string   `json:"event"`
		From      string   `json:"from,omitzero"`
		Data      wire.Raw `json:"data,omitzero"`
		Timestamp string   `json:"timestamp"`
	}
)

// encodeRaw encodes a value of ours, which always can be.
func encodeRaw(v any) wire.Raw {
	raw, _ := wire.Marshal(v) // maps of texts and numbers
	return raw
}

// line is one connection. Its fields are the reader's, but for out.
type line struct {
	bus   *Bus
	me    *component // nil before it has registered
	out   chan []byte
	limit *rate.Limiter
	done  bool // it has deregistered: the reader stops
}

func newLimiter() *rate.Limiter { return rate.NewLimiter(perSecond, perSecond) }

// serve handles one connection until it ends, is silent for too long, or ctx ends. The component
// leaves before its last lines are written, so that nobody sends to it any more.
func (b *Bus) serve(ctx context.Context, conn net.Conn) {
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// The queue exists before the component has a name, for answers to wrong requests.
	l := &line{bus: b, out: make(chan []byte, maxWaiting), limit: newLimiter()}
	gone := make(chan struct{})
	var writing sync.WaitGroup
	writing.Go(func() { write(conn, l.out, gone, milliseconds(b.HeartbeatTimeout)) })
	reason := l.read(ctx, conn)
	if l.me != nil {
		// First of all, so that no line is queued for a writer that is about to end.
		b.leave(l.me, reason)
	}
	close(gone)
	writing.Wait()
	if l.me != nil {
		b.connectionClosed()
	}
}

// write writes lines until gone is closed, and then those that are queued: an answer to
// bus.deregister must still arrive. A write that takes longer than most ends the connection.
func write(conn net.Conn, out <-chan []byte, gone <-chan struct{}, most time.Duration) {
	put := func(text []byte) bool {
		_ = conn.SetWriteDeadline(time.Now().Add(most))
		_, err := conn.Write(text)
		if err != nil {
			_ = conn.Close()
		}
		return err == nil
	}
	for {
		select {
		case text := <-out:
			if !put(text) {
				return
			}
		case <-gone:
			for len(out) > 0 {
				if !put(<-out) {
					return
				}
			}
			return
		}
	}
}

// read answers line after line, and returns why it stopped, in the words of component.left. A line
// that is wrong is answered, and the connection goes on; requests without an id are not answered.
func (l *line) read(ctx context.Context, conn net.Conn) (reason string) {
	in := bufio.NewReaderSize(conn, 64<<10)
	for !l.done {
		// Every line counts as a sign of life, not only bus.heartbeat.
		_ = conn.SetReadDeadline(time.Now().Add(milliseconds(l.bus.HeartbeatTimeout)))
		text, err := readLine(in, l.bus.MaxMessageBytes)
		if _, wrong := errors.AsType[*rpcError](err); err != nil && !wrong {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return "timeout"
			}
			return "disconnected"
		}
		var r request
		if err == nil {
			r, err = parse(text)
		}
		var result any
		if err == nil {
			result, err = l.handle(ctx, r)
		}
		// A line that could not be read at all is answered too, with the id null.
		if reply := r.id != nil || err != nil && r.method == ""; reply {
			select {
			// This waits for room, unlike give: a component that does not read its own answers holds up only
			// itself.
			case l.out <- answer(r.id, result, err):
			case <-ctx.Done():
				return "disconnected"
			}
		}
	}
	return "deregistered"
}

// handle runs one request. Before bus.register nothing else is allowed.
func (l *line) handle(ctx context.Context, r request) (any, error) {
	if !l.limit.Allow() {
		return nil, &rpcError{codeLimited, "rate_limited", map[string]int{"per_second": perSecond}}
	}
	if r.method == "bus.register" {
		return l.register(r)
	}
	if l.me == nil {
		return nil, &rpcError{codeStranger, "not_registered", nil}
	}
	if strings.HasPrefix(r.method, "amp.") {
		if l.bus.gateway == nil {
			return nil, noComponent(gatewayName)
		}
		return l.bus.gateway.handle(ctx, r)
	}
	// The methods of the bus. Everything they return is encoded by answer.
	do := map[string]func(request) (any, error){
		"bus.deregister": l.deregister, "bus.heartbeat": l.heartbeat, "bus.discover": l.discover, "bus.send": l.send,
		"bus.broadcast": l.broadcast,
		"bus.subscribe": l.subscribe, "bus.unsubscribe": l.unsubscribe, "bus.publish": l.publish, "bus.notify": l.notify,
	}[r.method]
	if do == nil {
		return nil, &rpcError{codeMethod, "There is no method " + r.method + ".", nil}
	}
	return do(r)
}

// register names the connection and announces it to the others.
func (l *line) register(r request) (any, error) {
	// The params are decoded into the component, and its other fields are not part of the JSON.
	c := &component{connected: time.Now(), heard: time.Now(), out: l.out}
	if err := r.read(c); err != nil {
		return nil, err
	}
	if l.me != nil {
		return nil, &rpcError{codeTaken, "already_registered", map[string]string{"name": l.me.Name}}
	}
	if !nameForm.MatchString(c.Name) {
		return nil, badParams("The name of a component should be 1 to 63 lower-case letters, "+
			"digits and hyphens, and is %.80q.", c.Name)
	}
	if c.Role == "" {
		c.Role = "worker"
	}
	if c.Capabilities == nil {
		c.Capabilities = []string{}
	}
	if err := l.bus.join(c); err != nil {
		return nil, err
	}
	l.me = c
	l.bus.notifyAll(c.Name, "component.joined", map[string]string{"name": c.Name, "role": c.Role})
	return map[string]any{
		"status": "registered", "heartbeat_interval_ms": l.bus.HeartbeatInterval,
		"heartbeat_timeout_ms": l.bus.HeartbeatTimeout,
	}, nil
}

// deregister ends the connection after its answer.
func (l *line) deregister(request) (any, error) {
	l.bus.leave(l.me, "deregistered")
	l.done = true
	return map[string]string{"status": "deregistered"}, nil
}

// heartbeat notes a sign of life for bus.discover. Any line keeps the connection open.
func (l *line) heartbeat(request) (any, error) {
	l.bus.mu.Lock()
	l.me.heard = time.Now()
	l.bus.mu.Unlock()
	return map[string]any{"status": "ok", "uptime_ms": time.Since(l.bus.started).Milliseconds()}, nil
}

// found is a component in the answer to bus.discover.
type found struct {
	component
	ConnectedAt   string `json:"connected_at"`
	LastHeartbeat string `json:"last_heartbeat"`
}

// discover lists the components with a role and a capability, all if they are empty.
func (l *line) discover(r request) (any, error) {
	var p struct {
		Role       string `json:"role"`
		Capability string `json:"capability"`
	}
	if err := r.read(&p); err != nil {
		return nil, err
	}
	list := []found{}
	l.bus.mu.Lock()
	for _, c := range l.bus.components {
		// The gateway is among them.
		if (p.Role == "" || p.Role == c.Role) && (p.Capability == "" || slices.Contains(c.Capabilities, p.Capability)) {
			list = append(list, found{*c, amp.Stamp(c.connected), amp.Stamp(c.heard)})
		}
	}
	l.bus.mu.Unlock()
	slices.SortFunc(list, func(x, y found) int { return strings.Compare(x.Name, y.Name) })
	return map[string]any{"components": list}, nil
}

// payloadOf decodes params that must have a payload, which is part of into.
func payloadOf(r request, into any, payload *wire.Raw) error {
	if err := r.read(into); err != nil {
		return err
	}
	if *payload == nil {
		return badParams("The payload is missing. It may be any JSON.")
	}
	return nil
}

// send sends to one component. "delivered" means that the line is in its queue, not that it was read.
func (l *line) send(r request) (any, error) {
	var p struct {
		To      string   `json:"to"`
		Payload wire.Raw `json:"payload"`
	}
	if err := payloadOf(r, &p, &p.Payload); err != nil {
		return nil, err
	}
	l.bus.mu.Lock()
	// The lock is not held while the line is queued. If the component leaves in between, the line is lost,
	// as it would be a moment later.
	to := l.bus.components[p.To]
	l.bus.mu.Unlock()
	switch {
	case to == nil:
		return nil, noComponent(p.To)
	case to.out == nil:
		return nil, badParams("The gateway takes the methods amp.send, amp.inbox and amp.identity.")
	case !to.enqueue(push("bus.message", letter{From: l.me.Name, Payload: p.Payload, Timestamp: stamp()})):
		return nil, &rpcError{
			codeLimited, "rate_limited",
			map[string]string{"name": p.To, "reason": "it does not read what waits for it"},
		}
	}
	return map[string]string{"status": "delivered"}, nil
}

// broadcast sends to all other components that have room, and names them.
func (l *line) broadcast(r request) (any, error) {
	var p struct {
		Payload wire.Raw `json:"payload"`
	}
	if err := payloadOf(r, &p, &p.Payload); err != nil {
		return nil, err
	}
	text := push("bus.message", letter{From: l.me.Name, Payload: p.Payload, Timestamp: stamp()})
	// Components whose queue is full are missing from the list.
	names := []string{}
	for _, c := range l.bus.others(l.me.Name) {
		if c.enqueue(text) {
			names = append(names, c.Name)
		}
	}
	return map[string]any{"delivered_to": names, "count": len(names)}, nil
}

// topicOf reads the topic of a request.
func topicOf(r request) (string, error) {
	var p struct {
		Topic string `json:"topic"`
	}
	if err := r.read(&p); err != nil {
		return "", err
	}
	if p.Topic == "" || len(p.Topic) > 256 {
		return "", badParams("The topic should be a text of 1 to 256 bytes, such as \"sensor.updates\".")
	}
	return p.Topic, nil
}

// subscribe adds the component to a topic. It checks under the lock that the component has not left,
// or the subscription would stay for ever.
func (l *line) subscribe(r request) (any, error) {
	topic, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	l.bus.mu.Lock()
	defer l.bus.mu.Unlock()
	if l.bus.components[l.me.Name] != l.me {
		return nil, &rpcError{codeStranger, "not_registered", nil}
	}
	if l.bus.topics[topic] == nil {
		l.bus.topics[topic] = map[string]bool{}
	}
	l.bus.topics[topic][l.me.Name] = true
	return map[string]string{"status": "subscribed", "topic": topic}, nil
}

// unsubscribe removes the component from a topic; a topic without subscribers does not exist.
func (l *line) unsubscribe(r request) (any, error) {
	topic, err := topicOf(r)
	if err != nil {
		return nil, err
	}
	l.bus.mu.Lock()
	defer l.bus.mu.Unlock()
	if !l.bus.topics[topic][l.me.Name] {
		return nil, &rpcError{codeNoTopic, "topic_not_found", map[string]string{"topic": topic}}
	}
	delete(l.bus.topics[topic], l.me.Name)
	if len(l.bus.topics[topic]) == 0 {
		delete(l.bus.topics, topic)
	}
	return map[string]string{"status": "unsubscribed", "topic": topic}, nil
}

// publish sends to the subscribers of a topic. amp.inbound is the gateway's alone: components trust
// that what arrives there was verified.
func (l *line) publish(r request) (any, error) {
	var p struct {
		Topic   string   `json:"topic"`
		Payload wire.Raw `json:"payload"`
	}
	if err := payloadOf(r, &p, &p.Payload); err != nil {
		return nil, err
	}
	if p.Topic == inbound {
		return nil, badParams("Only the gateway publishes to %s: what comes there has been verified.", inbound)
	}
	if _, err := topicOf(r); err != nil {
		return nil, err
	}
	return map[string]any{"topic": p.Topic, "delivered_to": l.bus.publish(p.Topic, l.me.Name, p.Payload)}, nil
}

// notify sends an event to all other components. Names of the bus's own events are refused, so that
// no component can pretend that another has left.
func (l *line) notify(r request) (any, error) {
	var p struct {
		Event string   `json:"event"`
		Data  wire.Raw `json:"data"`
	}
	if err := r.read(&p); err != nil {
		return nil, err
	}
	if p.Event == "" || strings.HasPrefix(p.Event, "component.") || strings.HasPrefix(p.Event, "bus.") {
		return nil, badParams("The event should be a text such as \"tick\"; those that begin with " +
			"component. and bus. are the bus's own.")
	}
	text := push("bus.notify", notice{p.Event, l.me.Name, p.Data, stamp()})
	n := 0
	for _, c := range l.bus.others(l.me.Name) {
		if c.enqueue(text) {
			n++
		}
	}
	return map[string]int{"delivered_to": n}, nil
}
