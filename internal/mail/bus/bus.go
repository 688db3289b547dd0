package bus

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// Bus brings components together.
type Bus struct {
	Config
	gateway *gateway // nil for none
	started time.Time

	mu         sync.Mutex
	components map[string]*component
	topics     map[string]map[string]bool // the names of those who have subscribed
	busy       int                        // connections of components
	left       chan struct{}              // one has ended
}

// gatewayName is that of the component that has the agent's mail.
const gatewayName = "gateway"

// New makes a bus. With a mailbox it has a gateway.
func New(c Config, box Mailbox) *Bus {
	b := &Bus{
		Config: c.withDefaults(), started: time.Now(), components: map[string]*component{},
		topics: map[string]map[string]bool{}, left: make(chan struct{}, 1),
	}
	if box != nil {
		b.gateway = &gateway{box: box, bus: b}
		now := time.Now()
		b.components[gatewayName] = &component{
			Name: gatewayName, Role: gatewayName,
			Capabilities: []string{"amp.send", "amp.inbox", "amp.identity"}, connected: now, heard: now,
		}
	}
	return b
}

// Run serves the socket until ctx ends. Components are then told, and have a while to
// leave.
func (b *Bus) Run(ctx context.Context) error {
	l, err := b.listen(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(b.pidFile()) }()
	connections, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { b.serve(connections, conn) })
		}
	})
	if b.gateway != nil {
		running.Go(func() { b.gateway.run(ctx) })
	}
	<-ctx.Done()
	b.tell("", "bus.shutdown", map[string]int64{"timeout_ms": b.ShutdownTimeout})
	_ = l.Close()
	late := time.NewTimer(milliseconds(b.ShutdownTimeout))
	defer late.Stop()
	for b.attended() {
		select {
		case <-b.left:
		case <-late.C:
			hangUp()
			return nil
		}
	}
	hangUp()
	return nil
}

func (b *Bus) attended() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy > 0
}

// ended counts out the connection of a component, after all that was written to it.
func (b *Bus) ended() {
	b.mu.Lock()
	b.busy--
	b.mu.Unlock()
	select {
	case b.left <- struct{}{}:
	default:
	}
}

func (b *Bus) pidFile() string { return filepath.Join(filepath.Dir(b.Socket()), "bus.pid") }

// listen makes the socket, in a folder that only this user can enter.
func (b *Bus) listen(ctx context.Context) (net.Listener, error) {
	path := b.Socket()
	if err := ownFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fault.New(fault.Conflict, "A bus listens on %s already.", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, cannotListen(err, path)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, cannotListen(err, path)
	}
	err = os.Chmod(path, 0o700)
	if err == nil {
		err = os.WriteFile(b.pidFile(), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644)
	}
	if err != nil {
		_ = l.Close()
		return nil, cannotListen(err, path)
	}
	return l, nil
}

// ownFolder makes the folder, or sees that the one that is there is ours: its name can be
// guessed, and its place is open to all.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cannotListen(err, dir)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return cannotListen(err, dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() {
		return fault.New(fault.Conflict, "%s belongs to somebody else. Say with AMP_BUS_SOCKET where the socket goes.", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return cannotListen(err, dir)
	}
	return nil
}

func cannotListen(err error, path string) error {
	return fault.Wrap(err, fault.StoreReadOnly, "Cannot make the socket of the bus at %s.", path)
}

// join lets a component in.
func (b *Bus) join(c *component) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case c.Name == "bus" || b.components[c.Name] != nil:
		return &rpcError{codeTaken, "already_registered", map[string]string{"name": c.Name}}
	case len(b.components) >= b.MaxComponents:
		return &rpcError{codeFull, "bus_full", map[string]int{"max_components": b.MaxComponents}}
	}
	b.components[c.Name] = c
	b.busy++
	return nil
}

// leave takes a component out, once, and tells the others why.
func (b *Bus) leave(c *component, reason string) {
	b.mu.Lock()
	there := b.components[c.Name] == c
	if there {
		delete(b.components, c.Name)
		for topic, who := range b.topics {
			delete(who, c.Name)
			if len(who) == 0 {
				delete(b.topics, topic)
			}
		}
	}
	b.mu.Unlock()
	if !there {
		return
	}
	b.tell(c.Name, "component.left", map[string]string{"name": c.Name, "reason": reason})
}

// others are the components beside one, by name.
func (b *Bus) others(name string) []*component {
	b.mu.Lock()
	defer b.mu.Unlock()
	var list []*component
	for _, c := range b.components {
		if c.Name != name && c.out != nil {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y *component) int { return cmp.Compare(x.Name, y.Name) })
	return list
}

// tell tells everybody but one of an event.
func (b *Bus) tell(but, event string, data any) {
	line := push("bus.notify", notice{Event: event, Data: encodeRaw(data), Timestamp: stamp()})
	for _, c := range b.others(but) {
		c.give(line)
	}
}

// publish gives a payload to those who have subscribed to a topic.
func (b *Bus) publish(topic, from string, payload []byte) (delivered int) {
	line := push("bus.topic", letter{Topic: topic, From: from, Payload: payload, Timestamp: stamp()})
	b.mu.Lock()
	var list []*component
	for name := range b.topics[topic] {
		list = append(list, b.components[name])
	}
	b.mu.Unlock()
	for _, c := range list {
		if c.give(line) {
			delivered++
		}
	}
	return delivered
}

func stamp() string { return amp.Stamp(time.Now()) }

// String says where the bus is.
func (b *Bus) String() string { return fmt.Sprintf("the bus of %s at %s", b.Entity, b.Socket()) }
