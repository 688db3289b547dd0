package bus

import (
	"cmp"
	"context"
	"encoding/json" // a file that people write: unknown members are passed over
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"signalbox/internal/fault"
	"signalbox/internal/mail/amp"
)

// Bus is a running bus: the components that are connected, and their topics. Make one with New and
// call Run once; it ends with Run's context.
type Bus struct {
	Config
	gateway *gateway // nil without mail
	started time.Time

	mu         sync.Mutex
	components map[string]*component      // by name
	topics     map[string]map[string]bool // by topic, the names of its subscribers
	busy       int                        // connections of components that are not closed yet
	// left gets a value when a connection has ended, for Run, which waits for the last one.
	left chan struct{}
}

// gatewayName is the name of the component for mail. Nobody else can register it.
const gatewayName = "gateway"

// New makes a bus; box nil is one without mail.
func New(c Config, box Mailbox) *Bus {
	b := &Bus{
		Config: c.withDefaults(), started: time.Now(), components: map[string]*component{},
		topics: map[string]map[string]bool{}, left: make(chan struct{}, 1),
	}
	if box != nil {
		b.gateway = &gateway{box: box, bus: b}
		// The gateway is a component without a connection: others find it with bus.discover.
		now := time.Now()
		b.components[gatewayName] = &component{
			Name: gatewayName, Role: gatewayName,
			Capabilities: []string{"amp.send", "amp.inbox", "amp.identity"}, connected: now, heard: now,
		}
	}
	return b
}

// Run serves the socket until ctx ends. Then it announces bus.shutdown, accepts nobody, and gives
// the components ShutdownTimeout to leave before it closes their connections.
func (b *Bus) Run(ctx context.Context) error {
	// Fails early and leaves nothing behind.
	l, err := b.listen(ctx)
	if err != nil {
		return err
	}
	// The socket itself is removed by closing its listener.
	defer func() { _ = os.Remove(b.pidFile()) }()
	// Not below ctx: connections outlive it by the time for leaving.
	connections, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		for {
			// An error means that the listener was closed, below.
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
	// Before the listener closes, so that nobody registers and misses it.
	b.notifyAll("", "bus.shutdown", map[string]int64{"timeout_ms": b.ShutdownTimeout})
	_ = l.Close()
	// A component that does not leave in time is disconnected, not waited for.
	late := time.NewTimer(milliseconds(b.ShutdownTimeout))
	defer late.Stop()
	for b.anyConnected() {
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

// anyConnected reports whether a component is still connected.
func (b *Bus) anyConnected() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.busy > 0
}

// connectionClosed counts a component's connection as closed, after its queue was written.
func (b *Bus) connectionClosed() {
	b.mu.Lock()
	b.busy--
	b.mu.Unlock()
	select {
	case b.left <- struct{}{}:
	default:
	}
}

func (b *Bus) pidFile() string { return filepath.Join(filepath.Dir(b.Socket()), "bus.pid") }

// listen makes the socket, in a folder that only this user can enter. A socket that nobody answers
// on is left from a crash, and is replaced.
func (b *Bus) listen(ctx context.Context) (net.Listener, error) {
	path := b.Socket()
	if err := ownFolder(filepath.Dir(path)); err != nil {
		return nil, err
	}
	// Two buses on one path would each get some of the components.
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path); err == nil {
		_ = conn.Close()
		return nil, fault.New(fault.Conflict, "Another bus is already listening on %s.", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, cannotListen(err, path)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, cannotListen(err, path)
	}
	// The folder protects the socket; this is for systems where the socket's own mode counts too.
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

// ownFolder makes the folder, or checks that the one that exists is ours. It is in the folder for
// temporary files, where anybody could have made one under a name that is easy to guess; Lstat, so
// that a link to one of our own folders does not pass.
func ownFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cannotListen(err, dir)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return cannotListen(err, dir)
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() {
		return fault.New(fault.Conflict, "%s belongs to another user. Set AMP_BUS_SOCKET to another path.", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return cannotListen(err, dir)
	}
	return nil
}

// cannotListen is an error about the socket or its folder.
func cannotListen(err error, path string) error {
	return fault.Wrap(err, fault.StoreReadOnly, "Cannot create the bus socket at %s.", path)
}

// join adds a component, unless its name is taken or the bus is full.
func (b *Bus) join(c *component) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	// "bus" would look like the bus itself as a sender.
	case c.Name == "bus" || b.components[c.Name] != nil:
		return &rpcError{codeTaken, "already_registered", map[string]string{"name": c.Name}}
	case len(b.components) >= b.MaxComponents:
		return &rpcError{codeFull, "bus_full", map[string]int{"max_components": b.MaxComponents}}
	}
	b.components[c.Name] = c
	b.busy++
	return nil
}

// leave removes a component and its subscriptions, and announces why. It does so once: a second call,
// or one after the name was taken by another connection, changes nothing.
func (b *Bus) leave(c *component, reason string) {
	b.mu.Lock()
	// By identity, not by name: the name may belong to another connection by now.
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
	b.notifyAll(c.Name, "component.left", map[string]string{"name": c.Name, "reason": reason})
}

// others are the connected components but one, sorted by name. The gateway is not among them.
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

// notifyAll sends an event of the bus to all components but one; "" is all.
func (b *Bus) notifyAll(but, event string, data any) {
	line := push("bus.notify", notice{Event: event, Data: encodeRaw(data), Timestamp: stamp()})
	for _, c := range b.others(but) {
		c.enqueue(line)
	}
}

// publish sends a payload to the subscribers of a topic, and returns how many had room for it.
func (b *Bus) publish(topic, from string, payload []byte) (delivered int) {
	line := push("bus.topic", letter{Topic: topic, From: from, Payload: payload, Timestamp: stamp()})
	b.mu.Lock()
	var list []*component
	for name := range b.topics[topic] {
		list = append(list, b.components[name])
	}
	b.mu.Unlock()
	for _, c := range list {
		if c.enqueue(line) {
			delivered++
		}
	}
	return delivered
}

// stamp is the time of now, as the protocol writes it.
func stamp() string { return amp.Stamp(time.Now()) }

// String is the entity and the socket, for the line that the command prints.
func (b *Bus) String() string { return fmt.Sprintf("the bus of %s at %s", b.Entity, b.Socket()) }

// Config is bus.json. Every member but the entity has a default, which stands for 0 and "".
type Config struct {
	Entity            string `json:"entity"`
	SocketDir         string `json:"socket_dir"`
	MaxComponents     int    `json:"max_components"`
	MaxMessageBytes   int    `json:"max_message_bytes"`
	HeartbeatInterval int64  `json:"heartbeat_interval_ms"`
	HeartbeatTimeout  int64  `json:"heartbeat_timeout_ms"`
	ShutdownTimeout   int64  `json:"shutdown_timeout_ms"`
	Gateway           struct {
		Dir           string `json:"amp_dir"`
		FetchInterval int64  `json:"auto_fetch_interval_ms"`
	} `json:"gateway"`

	socket string // the path of the socket, from AMP_BUS_SOCKET
}

// nameForm is the form of the names of entities and components.
var nameForm = regexp.MustCompile(`^[a-z0-9-]{1,63}$`)

// Load reads the file in AMP_BUS_CONFIG, else bus.json in the folder of all agents if it exists. The
// variables AMP_BUS_ENTITY and AMP_BUS_SOCKET come before the file; the agent's name is the last
// resort for the entity.
func Load(root, agent string, env func(string) string) (Config, error) {
	var c Config
	// A file that the variable names must exist; bus.json need not.
	path := cmp.Or(env("AMP_BUS_CONFIG"), filepath.Join(root, "bus.json"))
	text, err := os.ReadFile(path)
	switch {
	case err == nil:
		if err := json.Unmarshal(text, &c); err != nil {
			return c, fault.Wrap(err, fault.InvalidConfig,
				"Cannot read %s. It should be a JSON object such as {\"entity\": \"brain\"}.", path)
		}
	case !errors.Is(err, fs.ErrNotExist) || env("AMP_BUS_CONFIG") != "":
		return c, fault.Wrap(err, fault.InvalidConfig, "Cannot read %s.", path)
	}
	c.Entity = cmp.Or(env("AMP_BUS_ENTITY"), c.Entity, agent)
	if !nameForm.MatchString(c.Entity) {
		return c, fault.New(fault.InvalidConfig,
			"The entity of a bus should be 1 to 63 lower-case letters, digits and hyphens, and "+
				"is %.80q. Say another with AMP_BUS_ENTITY.", c.Entity)
	}
	c.socket = env("AMP_BUS_SOCKET")
	return c.withDefaults(), nil
}

// withDefaults fills in the values of the protocol. It may be called twice.
func (c Config) withDefaults() Config {
	// The path of a Unix socket is short, about 100 bytes, so the default is not below the home folder.
	c.SocketDir = cmp.Or(c.SocketDir, filepath.Join(os.TempDir(), "amp-bus-"+c.Entity))
	c.MaxComponents = cmp.Or(c.MaxComponents, 32)
	c.MaxMessageBytes = cmp.Or(c.MaxMessageBytes, 1<<20)
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 10_000)
	c.HeartbeatTimeout = cmp.Or(c.HeartbeatTimeout, 30_000)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 5_000)
	c.Gateway.FetchInterval = cmp.Or(c.Gateway.FetchInterval, 30_000)
	return c
}

// Socket is the path of the socket.
func (c Config) Socket() string { return cmp.Or(c.socket, filepath.Join(c.SocketDir, "bus.sock")) }

// milliseconds is a duration from bus.json, which counts in milliseconds.
func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
