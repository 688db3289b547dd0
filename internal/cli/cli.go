// Package cli is the command line: one file per group of commands, and one package for
// each group that needs more than a file (mail, task, run, hook, harness, bench, demo,
// screen). A command reads its flags, calls the server's API or a package, and prints.
// It decides nothing: rules, roles and limits are the server's, so that every client
// gets the same ones.
//
// The parts that commands share are not here: package command has flags, arguments and
// exit codes, package api the client of the server, package output tables and texts for
// people.
//
// A command must not exit, print an error or read os.Stdin itself. It returns an error,
// which Main reports once, and it uses the streams of its App, so that tests can run it
// in memory.
package cli

import (
	"context"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/backup"
	"signalbox/internal/cli/bench"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/demo"
	"signalbox/internal/cli/harness"
	"signalbox/internal/cli/hook"
	"signalbox/internal/cli/ledger"
	"signalbox/internal/cli/mail"
	"signalbox/internal/cli/output"
	"signalbox/internal/cli/rules"
	"signalbox/internal/cli/run"
	"signalbox/internal/cli/screen"
	"signalbox/internal/cli/service"
	"signalbox/internal/cli/task"
)

// Main runs one command line and returns the exit code. It does not call os.Exit, so
// that main and the tests can both use it. The context of the command ends with the
// first SIGINT or SIGTERM; commands that made something on the server (a lent agent,
// rules of the conformance kit) then clean up before they return.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	root := newRoot(&command.App{In: in, Out: output.NewPrinter(out), Err: output.NewPrinter(errOut)})
	root.SetArgs(args)
	if err := root.ExecuteContext(ctx); err != nil {
		return command.Report(output.NewPrinter(errOut), err)
	}
	return 0
}

// newRoot builds the tree of commands. It is built anew for each call: cobra stores the
// values of flags in the tree, so a tree can be executed only once.
func newRoot(a *command.App) *cobra.Command {
	root := command.Group("signalbox", "One place that sees your AI agents, stops them, and proves what they did")
	root.Long = root.Short + ".\n\nStart the server with `signalbox up`. The other commands talk to it: on its " +
		"machine\nthey find it through the data folder, elsewhere with --server or " +
		"SIGNALBOX_SERVER\nand a token in SIGNALBOX_TOKEN."
	// Errors are printed by command.Report, with a sentence and the right exit code.
	// cobra would print its own text and the whole usage after every error.
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.In)
	root.SetOut(a.Out.Exactly())
	root.SetErr(a.Err.Exactly())
	root.SetFlagErrorFunc(command.FlagError)
	flags := root.PersistentFlags()
	flags.StringVar(&a.Server, "server", "", "the server's address (SIGNALBOX_SERVER)")
	flags.StringVar(&a.Data, "data", "", "the data folder (SIGNALBOX_DATA, ./signalbox-data)")
	root.AddCommand(
		newUp(a), newLogin(a), newStatus(a), newDoctor(a),
		screen.NewTop(a), task.New(a), newMCP(a), newCounters(a),
		run.New(a), harness.New(a), hook.New(a), mail.New(a), service.New(a),
		newConform(a), bench.New(a), demo.New(a), newVersion(a),
		backup.New(a), backup.NewRestore(a), backup.NewMigrate(a),
	)
	root.AddCommand(groups(a)...)
	ownHelp(root)
	alias(root)
	complete(a, root)
	return root
}

// groups are the commands that only have sub-commands and are no package of their own. Each sub-command is in
// the file of its group.
func groups(a *command.App) []*cobra.Command {
	return []*cobra.Command{
		// The group `agents`. Reading is open to every operator; the server refuses
		// changes from viewers, and hides agents of other workspaces from confined operators.
		// The command line checks neither: the rule is in one place.
		command.Group("agents", "The agents: list, add, show, change, suspend, remove",
			newAgentsLs(a), newAgentsAdd(a), newAgentsShow(a), newAgentsSet(a), newAgentsSuspend(a, true),
			newAgentsSuspend(a, false), newAgentsRm(a)),
		// The group `config`. These commands read and write files and need no
		// server. They work on the configuration that the next start would use; `doctor` shows
		// the one that the running server uses.
		command.Group("config", "The configuration: show what is in force, set a key, check a file, reload",
			newConfigShow(a), newConfigSet(a), newConfigCheck(a), newConfigReload(a)),
		command.Group("alarms", "What nobody should have done: list, close", newAlarmsLs(a), newAlarmsClose(a)),
		// The group `deliveries`: the queue of outgoing calls. A delivery is
		// retried by the server until it succeeds or is given up; nothing here has to run for
		// that.
		command.Group("deliveries", "Outgoing calls, such as webhooks and notifications: list, show, resend",
			newDeliveriesLs(a), newDeliveriesShow(a), newDeliveriesResend(a)),
		// The group `gates`. A gate is a decision that people owe an agent,
		// whichever protocol it came through, so these commands know no protocol.
		command.Group("gates", "The decisions that people owe: list, show, approve, reject, watch, verify",
			newGatesLs(a), newGatesShow(a), newGatesDecide(a, true), newGatesDecide(a, false), screen.NewWatch(a),
			ledger.NewGatesVerify(a)),
		// The group `handoffs`: work that agents have handed on. Agents open handoffs
		// themselves, with a part of what they may do; people look at them and end them.
		command.Group("handoffs", "Work that agents have handed on to others: list, show, end",
			newHandoffsLs(a), newHandoffsShow(a), newHandoffsEnd(a)),
		// The group `keys`. The server stores the SHA-256 of a key and a hint of it;
		// the secret exists only in the answer that issued it.
		command.Group("keys", "The keys of agents, operators and users: issue, list, rotate, revoke",
			newKeysIssue(a), newKeysLs(a), newKeysRotate(a), newKeysRevoke(a),
			newKeysRotateLedger(a), newKeysRotateVault(a)),
		ledger.New(a),
		// The group `notify`. Channels are configuration, so they cannot be added
		// here; they are read at the start of the server.
		command.Group("notify", "Notification channels: list, test, secret",
			newNotifyLs(a), newNotifyTest(a), newNotifySecret(a)),
		// The group `operators`. The first admin is made by the first start of
		// the server, whose token is in the data folder; all others are added here.
		command.Group("operators", "The people who decide: list, add, change, remove, new token",
			newOperatorsLs(a), newOperatorsAdd(a), newOperatorsSet(a), newOperatorsRm(a), newOperatorsToken(a),
			newForgetPasskeys(a)),
		newPricing(a),
		rules.New(a),
		// The group `proxy`: settings of the model proxy. The calls themselves are
		// in the ledger. The server encrypts the providers' keys with the key of its data
		// folder and gives them to nobody, not even to admins: there is no command that
		// prints one.
		command.Group("proxy", "The model proxy: the providers' keys, and how agents' calls are treated",
			command.Group("key", "The providers' keys in the vault: set, list, remove",
				newProxyKeySet(a), newProxyKeyLs(a), newProxyKeyRm(a)),
			newProxyAgent(a)),
		// The group `sessions`. A session is one supervised run of an agent that
		// speaks AHP, or whose hooks ask through AHP.
		command.Group("sessions", "Sessions of supervised agents: list, show",
			newSessionsLs(a), newSessionsShow(a)),
		newUsers(a),
		// The group `workspaces`. Workspaces cannot be removed: entries in the
		// ledger belong to them.
		command.Group("workspaces", "The workspaces, each walled off from the others: list, add, open to others",
			newWorkspacesLs(a), newWorkspacesAdd(a), newWorkspacesSet(a)),
	}
}

// Commands returns the tree of commands for programs that describe it, such as the
// generator of the man pages. It is not meant to be executed.
func Commands() *cobra.Command {
	out, errOut := output.NewPrinter(os.Stdout), output.NewPrinter(os.Stderr)
	return newRoot(&command.App{In: os.Stdin, Out: out, Err: errOut})
}

// aliases are names that people try first. They work, but are in no help text and no
// example: every command has one documented name.
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

// ownHelp replaces cobra's help command, which exits with 0 when the command does not
// exist, and makes `completion` refuse unknown shells in the same way. Both suggest the
// name that was probably meant.
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
