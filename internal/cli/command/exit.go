package command

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/task/amp"
)

// The exit codes of failures. Do not renumber: hooks and scripts depend on them.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitRefused     = 3
	ExitUnreachable = 4
	ExitCancelled   = 130 // by the person at the terminal, as shells have it, or by another one
)

// usageError is a mistake in the command line itself, found before anything was done.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// Usage is the caller's mistake, with a sentence that says what to do: exit code 2.
func Usage(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// exitError ends the program with a code of its own, and a text if there is one.
type exitError struct {
	code int
	text string
}

func (e exitError) Error() string {
	if e.text == "" {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.text
}

// Exit ends the program with a code. Its text is written to standard error as it is, and nothing
// if it is empty: what happened was shown already.
func Exit(code int, text string) error { return exitError{code, text} }

// refusedCodes are the codes of tasks for what a policy or a person has not allowed, and that of a vote
// which only a person in a browser can cast. Other protocols answer with forbidden and name the rule.
var refusedCodes = []fault.Code{
	fault.Code(amp.AuthPolicy), fault.Code(amp.PlanNotApproved), fault.PresenceRequired,
}

// Report prints an error for a person and returns the exit code. The cause is printed
// too, on one line: the person at the terminal is the one who can act on "permission
// denied".
func Report(w output.Printer, err error) int {
	if x, ok := errors.AsType[exitError](err); ok {
		if x.text != "" {
			w.Print("%s", output.Lines(x.text))
		}
		return x.code
	}
	if u, ok := errors.AsType[usageError](err); ok {
		w.Print("signalbox: %s", output.Lines(u.text))
		return ExitUsage
	}
	e, known := errors.AsType[*fault.Error](err)
	if !known {
		w.Print("signalbox: %s", output.Lines(err.Error()))
		return ExitFailed
	}
	w.Print("signalbox: %s", output.Lines(e.Message))
	if e.Cause != nil {
		w.Print("  cause: %s", strings.ReplaceAll(e.Cause.Error(), "\n", " "))
	}
	_, byRule := e.Details["rule"]
	switch {
	case e.Code == api.Unreachable:
		return ExitUnreachable
	case byRule && e.Code == fault.Forbidden, slices.Contains(refusedCodes, e.Code):
		return ExitRefused
	}
	return ExitFailed
}
