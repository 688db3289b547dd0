// Package run is `signalbox run`: it runs agent CLIs under the eyes of a person (view.go) or of the server
// (supervise.go), records what they do, and makes supervised ones ask before each step (guard.go). The
// engines, their processes and the recording are packages of internal/run; this one knows how they are
// put together and what is shown.
package run

import (
	"io"
	"os"
	"path/filepath"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/server"
)

// flags are what a person says about a run.
type flags struct {
	resume, dir, model string
	latest, supervised bool
	unrecorded         bool
	budget             run.Budget
}

// New is the command `run` and what is below it.
func New(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "run ENGINE [flags] -- PROMPT", Short: "Run an agent CLI, watch it and record what it does",
		Long: "Runs an agent CLI (" + strings.Join(engine.Names(), ", ") +
			") with the prompt, shows what it is doing, and prints its\n" +
			"answer and the line by which another run goes on with the session.\n\n" +
			"The run is recorded in the ledger of the server that the other commands talk to; when\n" +
			"there is none, it runs all the same and says so. Without a prompt, standard input is it.",
		Example: "  signalbox run amp -- fix the failing test\n" +
			"  signalbox run claude --cwd /srv/repo --resume '`claude --resume 3f0c…`' -- and now the " +
			"docs\n  signalbox run amp --json -- list the TODOs",
		Args: command.AnyArguments(),
	})
	c.AddCommand(newTranslate(a), newLs(a), newShow(a), newCancel(a), newSupervise(a))
	var f flags
	config := command.AddConfigFlags(c)
	c.Flags().StringVar(&f.resume, "resume", "", "the session to go on with: its id, or any text with a resume line in it")
	c.Flags().BoolVar(&f.latest, "continue", false, "go on with the engine's most recent session")
	c.Flags().StringVar(&f.dir, "cwd", "", "the folder to work in; the current one when absent")
	c.Flags().StringVar(&f.model, "model", "", "the model for this run; for amp its mode")
	c.Flags().BoolVar(&f.supervised, "supervised", false, "every tool call passes the policy first; needs the server")
	c.Flags().BoolVar(&f.unrecorded, "no-record", false, "do not record the run")
	c.Flags().Float64Var(&f.budget.USD, "budget-usd", 0, "stop the run when it has cost so many dollars")
	c.Flags().Int64Var(&f.budget.Tokens, "budget-tokens", 0, "stop the run when it has used so many tokens")
	c.RunE = func(c *command.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		loaded, err := config.Load(a, c)
		if err != nil {
			return err
		}
		r, err := prepare(a, args, f, loaded)
		if err != nil {
			return err
		}
		return r.run(c.Context())
	}
	return c
}

// prepare checks what was typed.
func prepare(a *command.App, args []string, f flags, config *server.Config) (*runner, error) {
	e, err := engine.Find(args[0])
	if err != nil {
		return nil, command.Usage("%s", fault.From(err).Message)
	}
	prompt := strings.Join(args[1:], " ")
	if len(args) == 1 && !output.IsTerminal(a.In) {
		text, err := io.ReadAll(a.In)
		if err != nil {
			return nil, err
		}
		prompt = string(text)
	}
	if strings.TrimSpace(prompt) == "" {
		return nil, command.Usage("Say what the agent is to do: `signalbox run %s -- fix the failing test`.", e.Name)
	}
	if f.supervised && f.unrecorded {
		return nil, command.Usage("A supervised run is recorded: --supervised and --no-record do not go together.")
	}
	if f.supervised && a.Elsewhere("") && os.Getenv("SIGNALBOX_KEY") == "" {
		return nil, command.Usage(
			"The hooks of a supervised run ask the server as an agent. " +
				"Put a key of one into SIGNALBOX_KEY; `signalbox agents add` makes one.")
	}
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return nil, err
	}
	job := engine.Job{
		Prompt: prompt, Dir: dir, Override: f.model, Supervised: f.supervised,
		Settings: config.Runs.Engines[e.Name], Resume: engine.Resume{Engine: e.Name, Latest: f.latest},
	}
	if f.resume != "" {
		if job.Resume, err = e.ReadResume(f.resume); err != nil {
			return nil, command.Usage("%s", fault.From(err).Message)
		}
	}
	limits := process.DefaultLimits()
	limits.Start = config.Runs.StartTimeout
	return &runner{
		App: a, record: !f.unrecorded, budget: f.budget,
		spec: process.Spec{Engine: e, Job: job, Limits: limits},
	}, nil
}
