// Package harness is `signalbox harness`: a pipe between an agent that starts its
// harness as a program and the server's AHP. While the server cannot be asked, the pipe
// denies in its place (AHP-17). It knows messages of AHP only as far as it takes to
// deny them; what is allowed is decided by the server.
//
// It also knows where the server speaks AHP, for the hooks.
package harness

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/harness"
	"signalbox/internal/harness/spool"
	"signalbox/internal/kin"
	"signalbox/internal/proc"
)

// New is the command group `harness`.
func New(a *command.App) *command.Command {
	return command.Group("harness", "Supervise agents that speak AHP", newStdio(a), newKey(a))
}

// newKey is `harness key`.
func newKey(a *command.App) *command.Command {
	c := &command.Command{
		Use: "key", Short: "Print the key by which clients know what the server allows while it cannot be reached",
		Long: `The server signs the list of tools that rules with on_unreachable allow. A client that goes by
such a list has to know the key: give it to --trust of ` + "`signalbox harness stdio`" + ` or to
ahp.OpenSpool, from a place that the agent cannot change.`,
		Args: command.NoArguments(),
	}
	c.RunE = func(c *command.Command, _ []string) error {
		found, err := Trusted(c.Context(), a)
		if err != nil {
			return err
		}
		a.Out.Print("%s", found)
		return nil
	}
	return c
}

// Trusted is the key of the server's lists. It is asked for as an operator: whoever speaks AHP is an agent from then on, and
// so would be the terminal.
func Trusted(ctx context.Context, a *command.App) (string, error) {
	cl, err := a.Client()
	if err != nil {
		return "", err
	}
	var found spool.Overview
	err = cl.Call(ctx, api.Get("/ops/spools"), &found)
	return found.Key, err
}

// syncSpool gets the spool a list, and sends what it has, over a connection of its own. What fails is tried again with
// the next connection.
func syncSpool(ctx context.Context, a *command.App, key string, s *ahp.Spool) {
	ctx, cancel := context.WithTimeout(ctx, DialTime)
	defer cancel()
	address, err := Address(a, key)
	if err != nil || CheckPort(address) != nil {
		return
	}
	c, err := ahp.Dial(ctx, address, ahp.WithKey(key), ahp.WithCheck(CheckSocket), ahp.WithSpool(s))
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Handshake(ctx) // which does all of it
}

// newStdio is `harness stdio`.
func newStdio(a *command.App) *command.Command {
	c := &command.Command{
		Use: "stdio", Short: "An AHP harness on standard input and output, for an agent that starts its own",
		Long: `A pipe to the running server, for an agent that starts its harness as a program. On the
server's machine it uses the Unix socket in the data folder. Elsewhere, with --server or
SIGNALBOX_SERVER, it uses a WebSocket with the agent's key in --key or SIGNALBOX_KEY.

While the server cannot be reached, every event that asks for a decision is denied. With --spool
and --trust, tools that a rule with on_unreachable names are allowed in that time, and everything
is kept and sent later. ` + "`signalbox harness key`" + ` prints the key to trust.`,
		Args: command.NoArguments(),
	}
	key := c.Flags().String("key", "", "a key of the agent, for a server elsewhere (SIGNALBOX_KEY)")
	folder := c.Flags().String("spool", "", "a folder in which steps are kept while the server cannot be reached")
	trust := c.Flags().String("trust", "", "the key of the server whose list of tools holds in that time")
	c.RunE = func(c *command.Command, _ []string) error {
		// The flag beats the environment.
		if *key == "" {
			*key = Key()
		}
		p := newPipe(a.Out.Exactly(), func(ctx context.Context) (ahp.Stream, error) { return dial(ctx, a, *key) })
		if *folder != "" {
			var err error
			if p.spool, err = ahp.OpenSpool(*folder, *trust); err != nil {
				return err
			}
			p.sync = func(ctx context.Context) { syncSpool(ctx, a, *key, p.spool) }
		}
		return p.run(c.Context(), a.In)
	}
	return c
}

// DialTime is how long an agent waits for a server that is not there before it is
// denied.
const DialTime = 3 * time.Second

// Key is the agent's key in the environment.
func Key() string { return strings.TrimSpace(os.Getenv("SIGNALBOX_KEY")) }

// Address is where the server speaks AHP: its Unix socket on this machine, or the
// address of its POSTs if it is elsewhere or a key says which agent asks.
func Address(a *command.App, key string) (string, error) {
	if !a.Elsewhere(key) {
		return "unix:" + filepath.Join(a.DataDir(), harness.SocketFile), nil
	}
	base, err := a.Address()
	return base + "/ahp", err
}

// dial opens a stream to the server: the Unix socket, or a WebSocket at the address of
// the POSTs.
func dial(ctx context.Context, a *command.App, key string) (ahp.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTime)
	defer cancel()
	address, err := Address(a, key)
	if err != nil {
		return nil, err
	}
	// The same address serves both: http becomes ws, https becomes wss.
	if rest, posts := strings.CutPrefix(address, "http"); posts {
		address = "ws" + rest // a stream there is a WebSocket
	}
	if err := CheckPort(address); err != nil {
		return nil, err
	}
	return ahp.OpenStream(ctx, address, key, ahp.WithCheck(CheckSocket))
}

// CheckSocket refuses a process that listens on the server's socket and may have been started by the
// agent that asks: it would allow everything.
func CheckSocket(conn net.Conn) error {
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	peer, err := proc.UnixPeer(unix)
	if err != nil || peer.Sight != proc.Seen {
		return err // one in another namespace cannot be below us
	}
	return refuseOwn(peer)
}

// CheckPort is CheckSocket for a server on a port of this machine.
func CheckPort(address string) error {
	at, err := url.Parse(address)
	if err != nil {
		return nil //nolint:nilerr // whoever calls it says so
	}
	ip := net.ParseIP(at.Hostname())
	port, err := strconv.ParseUint(at.Port(), 10, 16)
	if err != nil || at.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil //nolint:nilerr // it is elsewhere
	}
	return refuseOwn(proc.Listener(uint16(port)))
}

func refuseOwn(peer proc.Peer) error {
	if peer.Sight == proc.Seen && kin.Suspect(peer.ID.PID) {
		return fmt.Errorf("what listens there (process %d) was started by this agent, or cannot be told apart from that; "+
			"a person starts the server, in a terminal or a service of its own", peer.ID.PID)
	}
	return nil
}
