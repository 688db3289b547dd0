package cli

import (
	"io"
	"net/http"
	"os"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/mcp"
	"signalbox/internal/server"
)

// nopWriteCloser leaves standard output open.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

func newMCP(a *command.App) *command.Command {
	c := &command.Command{
		Use: "mcp", Short: "An MCP server on standard input and output, for agents that speak MCP",
		Long: "Speaks the Model Context Protocol on standard input and output, with tools for the\nrole that the agent plays in tasks, for asking for an approval, and for mail. The same\nis there over HTTP at /mcp.\n\n" +
			"The key of the agent is given with --key or in SIGNALBOX_TOKEN.",
		Example: "  claude mcp add signalbox -e SIGNALBOX_TOKEN=rs-amp-… -- signalbox mcp",
		Args:    command.NoArguments(),
	}
	key := c.Flags().String("key", "", "the key of the agent (SIGNALBOX_TOKEN)")
	c.RunE = func(c *command.Command, _ []string) error {
		if *key == "" {
			*key = strings.TrimSpace(os.Getenv("SIGNALBOX_TOKEN"))
		}
		if *key == "" {
			return command.Usage(
				"Give the key of the agent with --key or in SIGNALBOX_TOKEN. " +
					"An operator makes one with `signalbox agents add`.")
		}
		base, err := a.Address()
		if err != nil {
			return err
		}
		call := mcp.Remote(base, *key, &http.Client{})
		if err := mcp.Serve(c.Context(), server.Version, call, io.NopCloser(a.In), nopWriteCloser{a.Out}); err != nil && c.Context().Err() == nil {
			return fault.Wrap(err, api.Unreachable, "The server at %s cannot be used with this key.", base)
		}
		return nil
	}
	return c
}
