package run

import (
	"io"

	"signalbox/internal/cli/command"
	"signalbox/internal/run/engine"
)

// newPermit is the command that amp and pi call before they change a file, in a run of the mode edit. It answers as
// hooks do, in both of their ways: on standard output, and with exit code 2 for a no.
func newPermit(a *command.App) *command.Command {
	c := &command.Command{
		Use: "permit --dir FOLDER", Short: "Say whether an agent may change a file", Hidden: true,
		Args: command.Exactly(0, "no arguments: what is to be changed is on standard input"),
	}
	dir := c.Flags().String("dir", "", "the folder of the run")
	c.RunE = func(*command.Command, []string) error {
		text, err := io.ReadAll(io.LimitReader(a.In, maxChange+1))
		why := "its arguments cannot be read"
		if err == nil && len(text) <= maxChange && *dir != "" {
			why = engine.MayChange(*dir, text)
		}
		if why != "" {
			return command.Exit(command.ExitUsage, "The run has the mode edit, and "+why+".")
		}
		a.Out.Print(`{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`)
		return nil
	}
	return c
}

// maxChange is the most that a tool may be given.
const maxChange = 64 << 20
