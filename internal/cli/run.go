package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/record"
	"signalbox/internal/server"
)

// runFlags are what a person says about a run.
type runFlags struct {
	resume, dir, model string
	latest, supervised bool
	unrecorded         bool
	budget             run.Budget
}

func newRun(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "run ENGINE [flags] -- PROMPT", Short: "Run an agent CLI, watch it and record what it does",
		Long: "Runs an agent CLI (" + strings.Join(engine.Names(), ", ") + ") with the prompt, shows what it is doing, and prints its\nanswer and the line by which another run goes on with the session.\n\n" +
			"The run is recorded in the ledger of the server that the other commands talk to; when\nthere is none, it runs all the same and says so. Without a prompt, standard input is it.",
		Example: "  signalbox run amp -- fix the failing test\n  signalbox run claude --cwd /srv/repo --resume '`claude --resume 3f0c…`' -- and now the docs\n  signalbox run amp --json -- list the TODOs",
		Args:    cobra.ArbitraryArgs,
	})
	c.AddCommand(newRunTranslate(a), newRunLs(a), newRunShow(a), newRunCancel(a), newRunSupervise(a))
	var f runFlags
	config := addConfigFlags(c)
	c.Flags().StringVar(&f.resume, "resume", "", "the session to go on with: its id, or any text with a resume line in it")
	c.Flags().BoolVar(&f.latest, "continue", false, "go on with the engine's most recent session")
	c.Flags().StringVar(&f.dir, "cwd", "", "the folder to work in; the current one when absent")
	c.Flags().StringVar(&f.model, "model", "", "the model for this run; for amp its mode")
	c.Flags().BoolVar(&f.supervised, "supervised", false, "every tool call passes the policy first; needs the server")
	c.Flags().BoolVar(&f.unrecorded, "no-record", false, "do not record the run")
	c.Flags().Float64Var(&f.budget.USD, "budget-usd", 0, "stop the run when it has cost so many dollars")
	c.Flags().Int64Var(&f.budget.Tokens, "budget-tokens", 0, "stop the run when it has used so many tokens")
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		loaded, err := config.load(a, c)
		if err != nil {
			return err
		}
		r, err := a.prepare(args, f, loaded)
		if err != nil {
			return err
		}
		return r.run(c.Context())
	}
	return c
}

// prepare checks what was typed.
func (a *app) prepare(args []string, f runFlags, config *server.Config) (*runner, error) {
	e, err := engine.Find(args[0])
	if err != nil {
		return nil, usage("%s", fault.From(err).Message)
	}
	prompt := strings.Join(args[1:], " ")
	if len(args) == 1 && !isTyped(a.in) {
		text, err := io.ReadAll(a.in)
		if err != nil {
			return nil, err
		}
		prompt = string(text)
	}
	if strings.TrimSpace(prompt) == "" {
		return nil, usage("Say what the agent is to do: `signalbox run %s -- fix the failing test`.", e.Name)
	}
	if f.supervised && f.unrecorded {
		return nil, usage("A supervised run is recorded: --supervised and --no-record do not go together.")
	}
	if f.supervised && a.elsewhere("") && os.Getenv("SIGNALBOX_KEY") == "" {
		return nil, usage("The hooks of a supervised run ask the server as an agent. Put a key of one into SIGNALBOX_KEY; `signalbox agents add` makes one.")
	}
	dir, err := filepath.Abs(f.dir)
	if err != nil {
		return nil, err
	}
	job := engine.Job{Prompt: prompt, Dir: dir, Override: f.model, Supervised: f.supervised, Settings: config.Runs.Engines[e.Name], Resume: engine.Resume{Engine: e.Name, Latest: f.latest}}
	if f.resume != "" {
		if job.Resume, err = e.ReadResume(f.resume); err != nil {
			return nil, usage("%s", fault.From(err).Message)
		}
	}
	limits := process.DefaultLimits()
	limits.Start = config.Runs.StartTimeout
	return &runner{app: a, record: !f.unrecorded, budget: f.budget, spec: process.Spec{Engine: e, Job: job, Limits: limits}}, nil
}

// isTyped reports whether a reader is somebody who types.
func isTyped(in io.Reader) bool {
	f, ok := in.(*os.File)
	return ok && isTerminal(f)
}

// runner runs one run in this process.
type runner struct {
	*app
	spec   process.Spec
	budget run.Budget
	record bool
	opened run.Run // when it is recorded
	server record.Server
}

// run runs it for somebody who watches, and has the exit code of its outcome.
func (r *runner) run(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		return err
	}
	v := newView(r.app, r.spec)
	last, stopped, err := r.execute(ctx, v.event, 30*time.Second)
	v.end(last)
	switch {
	case err != nil:
		return err
	case last.OK != nil && *last.OK:
		return nil
	case stopped != "":
		return outcomeError(exitRefused)
	}
	return outcomeError(exitFailed)
}

// open opens the run on the server, if there is one.
func (r *runner) open(ctx context.Context) error {
	r.spec.ID = id.New("run")
	if !r.record {
		return nil
	}
	api, err := r.client()
	if err == nil {
		r.server = r.recording(api)
		host, _ := os.Hostname()
		j := r.spec.Job
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		r.opened, err = r.server.Open(bounded, run.Request{
			Engine: r.spec.Engine.Name, Prompt: j.Prompt, Dir: j.Dir, Resume: j.Resume.Value, Model: j.Override, Budget: r.budget, Supervised: j.Supervised, Host: host, Recorded: true,
		})
	}
	if err == nil {
		r.spec.ID, r.budget = r.opened.ID, r.opened.Budget
		return nil
	}
	if refused := fault.From(err); refused.Code != fault.Internal && refused.Code != codeUnreachable && refused.Code != fault.Unauthenticated {
		return refused // it is there, and says no
	}
	if r.spec.Job.Supervised {
		return fault.Wrap(err, codeUnreachable, "A supervised run needs the server. Start it with `signalbox up`.")
	}
	r.record = false
	why := "No server can be reached. Start one with `signalbox up`."
	if e := fault.From(err); e.Code == fault.Unauthenticated {
		why = e.Message
	}
	_, _ = fmt.Fprintf(r.err, "The run is not recorded. %s\n", why)
	return nil
}

// recording is where runs are recorded.
func (a *app) recording(api *client) record.Server {
	return record.Server{URL: a.address, Token: api.token, HTTP: record.NewHTTP()}
}

// execute runs it to its end, and to the end of the recording, for which it waits so long
// at the most. stopped is why it was told to stop.
func (r *runner) execute(ctx context.Context, show func(engine.Event, engine.Usage), drain time.Duration) (last engine.Event, stopped string, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	unguard, err := r.guard(ctx)
	if err != nil {
		return last, "", err
	}
	defer unguard()
	r.spec.Job.MaxUSD = r.budget.USD
	locks := process.UserLocks()
	r.spec.Lock = locks.Take
	r.spec.Stop = r.overBudget
	emit := func(e engine.Event, u engine.Usage) { last = e; show(e, u) }
	if !r.record {
		process.Run(ctx, r.spec, emit)
		return last, cause(ctx), nil
	}
	defer r.server.HTTP.CloseIdleConnections()
	recorder := r.server.Begin(r.opened.ID, r.opened.Events, stop)
	reporting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var wg sync.WaitGroup
	wg.Go(func() { err = recorder.Run(reporting) })
	thrift()
	r.spec.Lock = both(locks.Take, recorder.Lock)
	process.Run(ctx, r.spec, func(e engine.Event, u engine.Usage) { recorder.Event(e, u); emit(e, u) })
	stopped = cause(ctx)
	recorder.Close()
	timer := time.AfterFunc(drain, giveUp)
	defer timer.Stop()
	wg.Wait()
	if err != nil {
		err = fault.Wrap(err, codeUnreachable, "Not everything of the run could be recorded.")
	}
	return last, stopped, err
}

// thrift gives back what the start of the program took, and lets it take little: of
// processes that wait most of their time there may be many.
func thrift() {
	debug.SetGCPercent(thriftPercent)
	debug.FreeOSMemory()
}

// thriftPercent is how much garbage there may be beside what is in use.
const thriftPercent = 20

// both takes one lock and then the other.
func both(first, then func(context.Context, string) (func(), error)) func(context.Context, string) (func(), error) {
	return func(ctx context.Context, thread string) (func(), error) {
		release, err := first(ctx, thread)
		if err != nil {
			return nil, err
		}
		also, err := then(ctx, thread)
		if err != nil {
			release()
			return nil, err
		}
		return func() { also(); release() }, nil
	}
}

// cause is why somebody told the run to stop.
func cause(ctx context.Context) string {
	if stopped, ok := context.Cause(ctx).(process.StoppedError); ok { //nolint:errorlint // it is that or something else
		return stopped.Reason
	}
	return ""
}

// overBudget says why the run has to stop, by what can be known without the price table.
func (r *runner) overBudget(u engine.Usage) string {
	switch {
	case r.budget.Tokens > 0 && u.Budgeted() >= r.budget.Tokens:
		return fmt.Sprintf("the run has used %d tokens, and its budget is %d", u.Budgeted(), r.budget.Tokens)
	case r.budget.USD > 0 && u.CostUSD != nil && *u.CostUSD >= r.budget.USD:
		return fmt.Sprintf("the run has cost $%.4f, and its budget is $%.4f", *u.CostUSD, r.budget.USD)
	}
	return ""
}
