package cli

import (
	"cmp"
	"io"
	"os"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/mcp"
	"signalbox/internal/task"
)

// nopWriteCloser keeps the bridge from closing standard output. Errors are still
// reported on standard error after the bridge has ended.
type nopWriteCloser struct{ io.Writer }

func (nopWriteCloser) Close() error { return nil }

// newMCP is started by an agent's MCP client, as a child process. Standard output
// belongs to the protocol: nothing else may be printed there. The command takes an
// agent's key, never the operator's token from the data folder: a tool call must not act
// with an operator's rights.
func newMCP(a *command.App) *command.Command {
	c := &command.Command{
		Use: "mcp", Short: "An MCP server on standard input and output, for agents that speak MCP",
		Long: `Speaks the Model Context Protocol on standard input and output, with tools for the
role that the agent plays in tasks, for asking a person, and for mail. The
server has the same tools at /mcp over HTTP; this command forwards messages to it.

The key of the agent is given with --key or in SIGNALBOX_TOKEN. While the server cannot
be reached the command stays, and answers every call with that.`,
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
		// Check server and key before the first message, and say what is wrong: to a person who tries the command. An MCP
		// client shows nothing of that, so every message of it is answered with the same.
		err = (&api.Client{Base: base, Token: *key}).Call(c.Context(), api.Get("/amp/me"), &task.Me{})
		if err != nil {
			a.Err.Print("%s", fault.From(err).Message)
		}
		broken := mcp.Bridge(c.Context(), base, *key, io.NopCloser(a.In), nopWriteCloser{a.Out.Exactly()})
		return cmp.Or(broken, err)
	}
	return c
}
