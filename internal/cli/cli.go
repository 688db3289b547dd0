// Package cli is the command line: one file per group of commands, and a package of its own for
// each group that is more than that (mail, task, run, hook, harness, bench, demo, screen). A
// command reads its flags, calls the server's API or a package, and prints; it decides nothing.
//
// What all commands stand on is not here: package command has their flags, arguments and exit
// codes, package api the client of the server, package output what is written for people.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/bench"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/demo"
	"signalbox/internal/cli/harness"
	"signalbox/internal/cli/hook"
	"signalbox/internal/cli/mail"
	"signalbox/internal/cli/output"
	"signalbox/internal/cli/run"
	"signalbox/internal/cli/screen"
	"signalbox/internal/cli/task"
)

// Main runs the command line and returns the exit code.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	root := newRoot(&command.App{In: in, Out: output.Printer{Writer: out}, Err: output.Printer{Writer: errOut}})
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		return command.Report(errOut, err)
	}
	return 0
}

func newRoot(a *command.App) *cobra.Command {
	root := command.Group("signalbox", "One place that sees your AI agents, stops them, and proves what they did")
	root.Long = root.Short + ".\n\nStart the server with `signalbox up`. The other commands talk to it: on its " +
		"machine\nthey find it through the data folder, elsewhere with --server or " +
		"SIGNALBOX_SERVER\nand a token in SIGNALBOX_TOKEN."
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.In)
	root.SetOut(a.Out)
	root.SetErr(a.Err)
	root.SetFlagErrorFunc(command.FlagError)
	flags := root.PersistentFlags()
	flags.StringVar(&a.Server, "server", "", "the server's address (SIGNALBOX_SERVER)")
	flags.StringVar(&a.Data, "data", "", "the data folder (SIGNALBOX_DATA, ./signalbox-data)")
	root.AddCommand(
		newUp(a), newLogin(a), newStatus(a), newDoctor(a), newConfig(a),
		newGates(a), screen.NewTop(a), task.New(a), newMCP(a), newCounters(a), newPolicy(a), newSessions(a), newDeliveries(a),
		newAgents(a), newKeys(a), newOperators(a), newOwners(a), newWorkspaces(a), newNotify(a), newProxy(a),
		run.New(a), newLedger(a), harness.New(a), hook.New(a), mail.New(a),
		newConform(a), bench.New(a), demo.New(a), newVersion(a),
	)
	ownHelp(root)
	alias(root)
	complete(a, root)
	return root
}

// Commands is the tree of commands, for those who describe it, such as the man pages.
func Commands() *cobra.Command {
	return newRoot(&command.App{In: os.Stdin, Out: output.Printer{Writer: os.Stdout}, Err: output.Printer{Writer: os.Stderr}})
}

// aliases are the other names that people try first.
var aliases = map[string]string{"ls": "list", "rm": "delete"}

// alias gives every command below c its other name.
func alias(c *cobra.Command) {
	for _, sub := range c.Commands() {
		if other := aliases[sub.Name()]; other != "" {
			sub.Aliases = append(sub.Aliases, other)
		}
		alias(sub)
	}
}

// ownHelp replaces cobra's help, which finds nothing wrong with a command that is
// not there, and gives its completion command the same care.
func ownHelp(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return command.OnlySubs(root, args)
			}
			return c.Help()
		},
	})
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.RunE, c.Args = command.OnlySubs, cobra.ArbitraryArgs
		}
	}
}
