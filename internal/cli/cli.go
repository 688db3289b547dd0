// Package cli is the command line: one file per group of commands. A command reads
// its flags, calls the server's API or a package, and prints; it decides nothing.
//
// Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by policy or by an
// operator, 4 server not reachable.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"signalbox/internal/fault"
)

const (
	exitFailed      = 1
	exitUsage       = 2
	exitRefused     = 3
	exitUnreachable = 4
)

// app is what the commands share.
type app struct {
	in       io.Reader
	out, err io.Writer
	server   string // --server
	data     string // --data
	json     bool   // --json
	verifier string // the group of commands whose verify checks what was downloaded
}

// Main runs the command line and returns the exit code.
func Main(args []string, in io.Reader, out, errOut io.Writer) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait
	root := newRoot(&app{in: in, out: out, err: errOut, verifier: "ledger"})
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	return report(errOut, err)
}

func newRoot(a *app) *cobra.Command {
	root := group("signalbox", "One place that sees your AI agents, stops them, and proves what they did")
	root.Long = root.Short + ".\n\nStart the server with `signalbox up`. The other commands talk to it: on its machine\nthey find it through the data folder, elsewhere with --server or SIGNALBOX_SERVER\nand a token in SIGNALBOX_TOKEN."
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(flagError)
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", "", "the server's address (SIGNALBOX_SERVER)")
	flags.StringVar(&a.data, "data", "", "the data folder (SIGNALBOX_DATA, ./signalbox-data)")
	root.AddCommand(
		newUp(a), newLogin(a), newStatus(a), newDoctor(a), newConfig(a),
		newGates(a), newTop(a), newTask(a), newMCP(a), newCounters(a), newPolicy(a), newAgents(a), newKeys(a), newOperators(a), newOwners(a), newWorkspaces(a), newNotify(a), newProxy(a),
		newRun(a), newLedger(a), newHarness(a), newHook(a), newMail(a), newConform(a), newBench(a), newDemo(a), newVersion(a),
	)
	ownHelp(root)
	return root
}

// group is a command that only has sub-commands.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: onlySubs, Args: cobra.ArbitraryArgs}
	c.AddCommand(subs...)
	return c
}

// onlySubs shows the help, or says which sub-command was probably meant.
func onlySubs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return usage("%q is not a command of `%s`. %s", args[0], c.CommandPath(), fault.DidYouMean(args[0], known))
}

// ownHelp replaces cobra's help, which finds nothing wrong with a command that is
// not there, and gives its completion command the same care.
func ownHelp(root *cobra.Command) {
	root.SetHelpCommand(&cobra.Command{Use: "help [COMMAND]", Short: "Help about any command", RunE: func(_ *cobra.Command, args []string) error {
		c, rest, err := root.Find(args)
		if err != nil || len(rest) > 0 {
			return onlySubs(root, args)
		}
		return c.Help()
	}})
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.RunE, c.Args = onlySubs, cobra.ArbitraryArgs
		}
	}
}

// usageError is the caller's mistake: exit code 2.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// flagError names the flag that was probably meant.
func flagError(c *cobra.Command, err error) error {
	unknown, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return usage("%s. `%s --help` shows what it takes.", sentence(err.Error()), c.CommandPath())
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return usage("The flag --%s is not known to `%s`. %s", unknown, c.CommandPath(), fault.DidYouMean("--"+unknown, known))
}

func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

// exactly is cobra.ExactArgs with a sentence.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != n {
			return usage("`%s` takes %s. `%s --help` shows how.", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}

// atMost is cobra.MaximumNArgs with a sentence.
func atMost(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) > n {
			return usage("`%s` takes %s. `%s --help` shows how.", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}

// atLeast is cobra.MinimumNArgs with a sentence.
func atLeast(n int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < n {
			return usage("`%s` takes %s. `%s --help` shows how.", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}

// outcomeError is an outcome that was shown already: only the exit code is left to say.
type outcomeError int

func (e outcomeError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// report prints an error for a person and chooses the exit code.
func report(w io.Writer, err error) int {
	if status, ok := errors.AsType[outcomeError](err); ok {
		return int(status)
	}
	if u, ok := errors.AsType[usageError](err); ok {
		_, _ = fmt.Fprintf(w, "signalbox: %s\n", u.text)
		return exitUsage
	}
	if x, ok := errors.AsType[exitError](err); ok {
		_, _ = fmt.Fprintln(w, x.text)
		return x.code
	}
	e, known := errors.AsType[*fault.Error](err)
	if !known {
		_, _ = fmt.Fprintf(w, "signalbox: %s\n", err)
		return exitFailed
	}
	_, _ = fmt.Fprintf(w, "signalbox: %s\n", e.Message)
	if e.Cause != nil {
		_, _ = fmt.Fprintf(w, "  cause: %s\n", strings.ReplaceAll(e.Cause.Error(), "\n", " "))
	}
	switch _, byRule := e.Details["rule"]; {
	case e.Code == codeUnreachable:
		return exitUnreachable
	case byRule && e.Code == fault.Forbidden:
		return exitRefused
	}
	if slices.Contains(refusedCodes, e.Code) {
		return exitRefused
	}
	return exitFailed
}
