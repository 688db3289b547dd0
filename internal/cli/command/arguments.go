package command

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
)

// Command is one command: its name, its help, its flags and what it does. No other package has to
// know whose type it is.
type Command = cobra.Command

// Group is a command that only has sub-commands.
func Group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: OnlySubs, Args: cobra.ArbitraryArgs}
	c.AddCommand(subs...)
	return c
}

// OnlySubs shows the help, or says which sub-command was probably meant.
func OnlySubs(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return c.Help()
	}
	var known []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			known = append(known, sub.Name())
		}
	}
	return Usage("%q is not a command of `%s`. %s", args[0], c.CommandPath(), fault.DidYouMean(args[0], known))
}

// FlagError names the flag that was probably meant.
func FlagError(c *cobra.Command, err error) error {
	unknown, ok := strings.CutPrefix(err.Error(), "unknown flag: --")
	if !ok {
		return Usage("%s. `%s --help` shows what it takes.", output.Sentence(err.Error()), c.CommandPath())
	}
	var known []string
	c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, "--"+f.Name) })
	return Usage("The flag --%s is not known to `%s`. %s", unknown, c.CommandPath(), fault.DidYouMean("--"+unknown, known))
}

// AnyArguments takes whatever comes.
func AnyArguments() cobra.PositionalArgs { return cobra.ArbitraryArgs }

// NoArguments refuses arguments.
func NoArguments() cobra.PositionalArgs { return Exactly(0, "no arguments") }

// Exactly is cobra.ExactArgs with a sentence.
func Exactly(n int, what string) cobra.PositionalArgs { return Between(n, n, what) }

// AtMost is cobra.MaximumNArgs with a sentence.
func AtMost(n int, what string) cobra.PositionalArgs { return Between(0, n, what) }

// AtLeast is cobra.MinimumNArgs with a sentence.
func AtLeast(n int, what string) cobra.PositionalArgs { return Between(n, -1, what) }

// Between is cobra.RangeArgs with a sentence; there is no most if it is negative.
func Between(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || most >= 0 && len(args) > most {
			return Usage("`%s` takes %s. `%s --help` shows how.", c.CommandPath(), what, c.CommandPath())
		}
		return nil
	}
}
