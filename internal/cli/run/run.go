// Package run is `signalbox run`. It runs agent CLIs for a person who watches (view.go)
// or for the server (supervise.go), records what they do (runner.go), and makes
// supervised ones ask before each step (guard.go).
//
// The engines, their processes and the recording are packages below internal/run. This
// one puts them together, and decides what is shown. A run goes through these steps:
// prepare checks what was typed, open opens the run on the server, execute runs the CLI
// and reports, and the exit code tells the outcome: 0 for success, 1 for a failure, 130 for a run that a person has
// cancelled, 3 for one that was stopped by a budget, a limit of time or a policy.
package run

import (
	"cmp"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/worktree"
	"signalbox/internal/server"
)

// flags are what a person says about a run.
type flags struct {
	// unrecorded is --no-record; latest is --continue.
	resume, dir, model string
	user               string
	latest, supervised bool
	mode               string
	unrecorded         bool
	offline            bool
	budget             run.Budget
	limits             [3]string // start, idle and total, as they were typed
	sandbox            bool
	sandboxSaid        bool     // --sandbox was typed, perhaps as --sandbox=false
	hosts              []string // --allow-host
	worktree           bool
}

// New is the command `run` and what is below it.
func New(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "runs ENGINE [flags] -- PROMPT", Aliases: []string{"run"},
		Short: "Run an agent CLI, watch it and record what it does",
		Long: "Runs an agent CLI (" + strings.Join(engine.Names(), ", ") +
			")\nwith the prompt, shows each step, and prints the answer and a line that resumes the session.\n\n" +
			"The run is recorded by the server that the other commands use. Without a server it runs\n" +
			"unrecorded, and says so. Without a prompt, standard input is the prompt.\n\n" +
			"Exit codes: 0 completed, 1 failed, 130 cancelled by a person, 3 stopped by a budget, a limit of\n" +
			"time or a policy.",
		Example: "  signalbox run amp -- fix the failing test\n" +
			"  signalbox run claude --cwd /srv/repo --resume '`claude --resume 3f0c…`' -- and now the " +
			"docs\n  signalbox run amp --json -- list the TODOs",
		Args: command.AnyArguments(),
	})
	c.AddCommand(newTranslate(a), newLs(a), newShow(a), newCancel(a), newSchedule(a), newSupervise(a), newPermit(a), newInside())
	var f flags
	config := command.AddConfigFlags(c)
	c.Flags().StringVar(&f.resume, "resume", "", "the session to resume: its id, or any text that contains a resume line")
	c.Flags().BoolVar(&f.latest, "continue", false, "resume the most recent session of the engine")
	c.Flags().StringVar(&f.dir, "cwd", "", "the folder to work in (default: the current one)")
	c.Flags().StringVar(&f.model, "model", "", "the model for this run; for amp its mode")
	c.Flags().StringVar(&f.user, "user", "",
		"the user on whose behalf it runs: a name, an id or an e-mail (default: SIGNALBOX_USER, else the agent's owner)")
	c.Flags().StringVar(&f.mode, "mode", "", "what the agent may do: read, edit (change files in its folder), full, or supervised "+
		"(ask the policy before each tool call; needs the server) (default: runs.ENGINE.permissions, else edit)")
	c.Flags().BoolVar(&f.supervised, "supervised", false, "the same as --mode supervised")
	c.Flags().BoolVar(&f.offline, "offline", false,
		"with --mode supervised: go on with what rules with on_unreachable allow while the server cannot be reached")
	c.Flags().BoolVar(&f.sandbox, "sandbox", false, "run the agent in a sandbox: it may change its folder, sees nothing of yours, and "+
		"reaches the server, its provider and --allow-host (default: that of the session, or runs.ENGINE.sandbox)")
	c.Flags().StringArrayVar(&f.hosts, "allow-host", nil,
		"with --sandbox: a host that the agent may call, such as packages.example.com or 127.0.0.1:4000; may be repeated")
	c.Flags().BoolVar(&f.worktree, "worktree", false, "give the agent a git worktree of its own, on the branch signalbox/RUN_ID, and show "+
		"what it has changed; changes without a commit are not in it")
	c.Flags().BoolVar(&f.unrecorded, "no-record", false, "do not record the run")
	c.Flags().Float64Var(&f.budget.USD, "budget-usd", 0, "stop the run after this many dollars")
	c.Flags().Int64Var(&f.budget.Tokens, "budget-tokens", 0, "stop the run after this many tokens")
	c.Flags().StringVar(&f.limits[0], "start-timeout", "",
		"stop the run if the agent says nothing for this long at its start (default: runs.start_timeout)")
	c.Flags().StringVar(&f.limits[1], "idle-timeout", "",
		"stop the run if the agent is silent for this long; 0 is no limit (default: runs.idle_timeout)")
	c.Flags().StringVar(&f.limits[2], "total-timeout", "",
		"stop the run after this long; 0 is no limit (default: runs.total_timeout)")
	c.RunE = func(c *command.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		loaded, err := config.Load(a, c)
		if err != nil {
			return err
		}
		f.sandboxSaid = c.Flags().Changed("sandbox")
		r, err := prepare(c.Context(), a, args, f, loaded)
		if err != nil {
			return err
		}
		return r.run(c.Context())
	}
	return c
}

// prepare checks what was typed and makes the runner. It starts nothing and calls
// nobody, so a mistake costs nothing.
func prepare(ctx context.Context, a *command.App, args []string, f flags, config *server.Config) (*runner, error) {
	e, err := engine.Find(args[0])
	if err != nil {
		return nil, command.Usage("%s", fault.From(err).Message)
	}
	prompt := strings.Join(args[1:], " ")
	// A prompt on standard input may be long and have any characters. A terminal is not
	// waited for: whoever typed no prompt wants to be told so.
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
	var asked engine.Mode
	switch {
	case f.supervised && f.mode != "" && f.mode != string(engine.Supervised):
		return nil, command.Usage("--supervised is --mode supervised, and does not go with --mode %s.", f.mode)
	case f.supervised:
		asked = engine.Supervised
	case f.mode != "":
		if asked, err = engine.ParseMode(f.mode); err != nil {
			return nil, command.Usage("--%s", fault.From(err).Message)
		}
	}
	mode := e.ModeOf(asked, config.Runs.Engines[e.Name])
	b := boxing{hosts: f.hosts, hidden: hidden(a, config)}
	if f.sandboxSaid || config.Runs.Engines[e.Name].Sandbox {
		on := f.sandbox || !f.sandboxSaid
		b.asked = &on
	}
	if err := b.check(ctx); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return nil, err
	}
	if err := e.May(engine.Job{Mode: mode, Dir: dir, Sandboxed: b.boxed, Settings: config.Runs.Engines[e.Name]}); err != nil {
		return nil, err
	}
	f.supervised = mode == engine.Supervised
	// A supervised run is decided about by the server, which records what it decides.
	if f.supervised && f.unrecorded {
		return nil, command.Usage("A supervised run is recorded: --mode supervised and --no-record do not go together.")
	}
	if f.unrecorded {
		if err := unkept(e, f.budget, "with --no-record"); err != nil {
			return nil, command.Usage("%s", fault.From(err).Message)
		}
	}
	if f.offline && !f.supervised {
		return nil, command.Usage("--offline goes with --mode supervised: other runs ask nobody.")
	}
	// On this machine the Unix socket says who asks; elsewhere only a key does.
	if f.supervised && a.Elsewhere("") && os.Getenv("SIGNALBOX_KEY") == "" {
		return nil, command.Usage(
			"The hooks of a supervised run ask the server as an agent. " +
				"Put a key of one into SIGNALBOX_KEY; `signalbox agents add` makes one.")
	}
	job := engine.Job{
		Prompt: prompt, Dir: dir, Override: f.model, Mode: mode,
		Settings: config.Runs.Engines[e.Name], Resume: engine.Resume{Engine: e.Name, Latest: f.latest},
	}
	if f.resume != "" {
		if job.Resume, err = e.ReadResume(f.resume); err != nil {
			return nil, command.Usage("%s", fault.From(err).Message)
		}
		if job.Resume, err = e.Whole(job); err != nil {
			return nil, command.Usage("%s", fault.From(err).Message)
		}
	}
	if f.worktree {
		if f.resume != "" || f.latest {
			return nil, command.Usage("A session goes on in the folder in which it began: name that with --cwd, without --worktree.")
		}
		if err := worktree.Check(ctx, dir); err != nil {
			return nil, err
		}
	}
	limits := processLimits(config.Runs.Limits(e.Name))
	for i, of := range []*time.Duration{&limits.Start, &limits.Idle, &limits.Total} {
		name := []string{"start", "idle", "total"}[i]
		if f.limits[i] == "" {
			continue
		}
		if *of, err = engine.ParseLimit(name, f.limits[i]); err != nil {
			return nil, command.Usage("--%s-timeout %s, and is %q.", name, err, f.limits[i])
		}
	}
	return &runner{
		boxing: b, planting: planting{wanted: f.worktree}, App: a, record: !f.unrecorded, budget: f.budget, offline: f.offline, most: config.Runs.Budget,
		named: mode == engine.Read || asked != "" || config.Runs.Engines[e.Name].Permissions != "",
		user:  cmp.Or(f.user, os.Getenv(process.UserVariable)), local: localAgent(config),
		spec: process.Spec{Engine: e, Job: job, Limits: limits},
	}, nil
}

// processLimits are the limits of a run as its process has them. How long it may take to leave does not depend on it.
func processLimits(l run.Limits) process.Limits {
	limits := process.DefaultLimits()
	of := func(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }
	limits.Start, limits.Idle, limits.Total = of(l.Start), of(l.Idle), of(l.Total)
	return limits
}

// localAgent is the agent as which hooks of this user ask through the socket of this machine, "" where others than the
// server's user may ask as well: then only the server knows.
func localAgent(config *server.Config) string {
	if config.Shared != "" {
		return ""
	}
	return cmp.Or(config.Harness.SocketAgent, "local")
}
