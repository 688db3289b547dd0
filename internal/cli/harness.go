package cli

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"signalbox/client/ahp"
	"signalbox/internal/harness"
)

func newHarness(a *app) *cobra.Command {
	return group("harness", "Supervise agents that speak AHP", newHarnessStdio(a))
}

func newHarnessStdio(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "stdio", Short: "An AHP harness on standard input and output, for an agent that starts its own",
		Long: "A pipe to the running server, for an agent that starts its harness as a program. On the\nserver's machine it uses the Unix socket in the data folder, and elsewhere, with --server\nor SIGNALBOX_SERVER, a WebSocket with the agent's key in --key or SIGNALBOX_KEY.\n\n" +
			"Nothing is allowed while the server cannot be reached: every event that asks is refused,\nuntil it is back.",
		Args: exactly(0, "no arguments"),
	}
	key := c.Flags().String("key", "", "a key of the agent, for a server elsewhere (SIGNALBOX_KEY)")
	c.RunE = func(c *cobra.Command, _ []string) error {
		if *key == "" {
			*key = strings.TrimSpace(os.Getenv("SIGNALBOX_KEY"))
		}
		p := newPipe(a.out, a.harnessDial(*key))
		return p.run(c.Context(), a.in)
	}
	return c
}

// harnessDial is how the server's AHP is reached from here.
func (a *app) harnessDial(key string) func(context.Context) (ahp.Stream, error) {
	return func(ctx context.Context) (ahp.Stream, error) {
		ctx, cancel := context.WithTimeout(ctx, dialTime)
		defer cancel()
		if !a.elsewhere(key) {
			return ahp.OpenStream(ctx, "unix:"+filepath.Join(a.dataDir(), harness.SocketFile), "")
		}
		base, err := a.address()
		if err != nil {
			return nil, err
		}
		return ahp.OpenStream(ctx, strings.Replace(base, "http", "ws", 1)+"/ahp", key)
	}
}

// elsewhere reports whether the server is to be reached over the network: it was named, or
// a key says who asks.
func (a *app) elsewhere(key string) bool {
	return a.server != "" || os.Getenv("SIGNALBOX_SERVER") != "" || key != ""
}
