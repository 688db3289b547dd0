// Package harness is `signalbox harness`: a pipe between an agent that starts its harness as a
// program and the server's AHP, which refuses in the server's place what the server cannot be asked.
// It knows messages of AHP as far as it takes to refuse them; what is allowed is the server's to say.
package harness

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/cli/command"
	"signalbox/internal/harness"
)

// New is the group of commands `harness`.
func New(a *command.App) *command.Command {
	return command.Group("harness", "Supervise agents that speak AHP", newStdio(a))
}

func newStdio(a *command.App) *command.Command {
	c := &command.Command{
		Use: "stdio", Short: "An AHP harness on standard input and output, for an agent that starts its own",
		Long: "A pipe to the running server, for an agent that starts its harness as a program. On the\n" +
			"server's machine it uses the Unix socket in the data folder, and elsewhere, with --server\n" +
			"or SIGNALBOX_SERVER, a WebSocket with the agent's key in --key or SIGNALBOX_KEY.\n\n" +
			"Nothing is allowed while the server cannot be reached: every event that asks is refused,\nuntil it is back.",
		Args: command.NoArguments(),
	}
	key := c.Flags().String("key", "", "a key of the agent, for a server elsewhere (SIGNALBOX_KEY)")
	c.RunE = func(c *command.Command, _ []string) error {
		if *key == "" {
			*key = Key()
		}
		p := newPipe(a.Out, func(ctx context.Context) (ahp.Stream, error) { return dial(ctx, a, *key) })
		return p.run(c.Context(), a.In)
	}
	return c
}

// DialTime is how long an agent waits for a server that is not there.
const DialTime = 3 * time.Second

// Key is the key of the agent in the environment.
func Key() string { return strings.TrimSpace(os.Getenv("SIGNALBOX_KEY")) }

// Address is where the server speaks AHP: its Unix socket on this machine, or the address of its
// POSTs if it is elsewhere or a key says who asks.
func Address(a *command.App, key string) (string, error) {
	if !a.Elsewhere(key) {
		return "unix:" + filepath.Join(a.DataDir(), harness.SocketFile), nil
	}
	base, err := a.Address()
	return base + "/ahp", err
}

// dial opens a stream to the server.
func dial(ctx context.Context, a *command.App, key string) (ahp.Stream, error) {
	ctx, cancel := context.WithTimeout(ctx, DialTime)
	defer cancel()
	address, err := Address(a, key)
	if err != nil {
		return nil, err
	}
	if rest, posts := strings.CutPrefix(address, "http"); posts {
		address = "ws" + rest // a stream there is a WebSocket
	}
	return ahp.OpenStream(ctx, address, key)
}
