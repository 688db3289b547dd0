package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/harness"
	"signalbox/internal/cli/hook"
	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/record"
	"signalbox/internal/task"
)

// runner runs one run in this process: prepare or a supervisor makes it, and execute
// uses it once.
type runner struct {
	*command.App
	boxing
	planting
	spec   process.Spec
	budget run.Budget
	most   run.Budget // what the configuration allows a run, as far as it is known here
	// record says that the run is on the server, with opened and server set. Otherwise the
	// run exists only in this process.
	record bool
	opened run.Run    // when it is recorded
	user   string     // on whose behalf it is, "" if nobody has said
	local  string     // the agent as which hooks on this machine ask
	desk   *hook.Desk // of a supervised run
	// offline says that the desk goes on with what rules allow while the server cannot be reached.
	offline bool
	// named says that somebody has named the mode, and that the run is stopped if its stream shows more.
	named bool
	// unasked is what the CLI has done without a decision, "" if nothing. Only the run's own goroutine uses it.
	unasked string
	server  record.Server
	// awaited is told at which gates a person is awaited; nil if nobody watches.
	awaited func([]run.Awaited)
	trouble func(why string) // is told that nothing can be recorded, and with "" that it can be again
}

// run runs it for somebody who watches, and returns the exit code of the outcome.
func (r *runner) run(ctx context.Context) error {
	if err := r.open(ctx); err != nil {
		if errors.Is(context.Cause(ctx), context.Canceled) {
			return command.Exit(command.ExitCancelled, "")
		}
		return err
	}
	j := r.spec.Job
	said := ""
	if r.boxed {
		said = " · in a sandbox"
	}
	r.Err.Print("%s%s · mode %s: %s", r.spec.Engine.Name, said, j.Mode, j.Mode.Meaning())
	v := newView(r.App, r.spec)
	v.recorded = r.opened.ID
	r.awaited, r.trouble = v.await, v.troubled
	last, err := r.execute(ctx, v.event, 30*time.Second)
	v.end(last)
	r.showTree()
	switch {
	case err != nil:
		return err
	case last.OK != nil && *last.OK:
		return nil
	case last.Cause == engine.ByPerson:
		return command.Exit(command.ExitCancelled, "")
	case last.Cause != "":
		return command.Exit(command.ExitRefused, "")
	}
	return command.Exit(command.ExitFailed, "")
}

// open opens the run on the server. Without a server an unsupervised run goes on
// unrecorded, and says so; a supervised run fails, since nobody could be asked. A
// server that is there and refuses is an error: a budget that is used up, for example.
func (r *runner) open(ctx context.Context) error {
	// A run that is not recorded has an id too, by which its processes are found (RUN-22).
	r.spec.ID = id.New("run")
	if !r.record {
		return nil
	}
	cl, err := r.Client()
	if err == nil {
		r.server = recording(r.App, cl)
		host, _ := os.Hostname()
		j := r.spec.Job
		// A person waits for this call; a server that hangs counts as one that is away.
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		r.opened, err = r.server.Open(bounded, r.askMetered(bounded, cl, run.Request{
			Engine: r.spec.Engine.Name, Prompt: j.Prompt, Dir: j.Dir, Resume: j.Resume.Value, Model: j.Override,
			Budget: r.budget, Mode: j.Mode, Host: host, Recorded: true, Limits: run.Limits{
				Start: r.spec.Limits.Start.Seconds(), Idle: r.spec.Limits.Idle.Seconds(), Total: r.spec.Limits.Total.Seconds(),
			},
			Sandbox: r.asked, Hosts: r.hosts, Worktree: r.wanted, User: r.user, Agent: r.hooksAgent(bounded, cl), Delegation: os.Getenv(process.DelegationVariable),
		}))
	}
	if err == nil {
		r.spec.ID, r.budget, r.boxed = r.opened.ID, r.opened.Budget, r.opened.Sandbox
		return nil
	}
	// The server is there and refuses. To run all the same would go behind its back.
	if refused := fault.From(err); refused.Code != fault.Internal && refused.Code != api.Unreachable &&
		refused.Code != fault.Unauthenticated {
		return refused // it is there, and says no
	}
	if r.spec.Job.Mode == engine.Supervised {
		return fault.Wrap(err, api.Unreachable, "A supervised run needs the server. Start it with `signalbox up`.")
	}
	if err := unkept(r.spec.Engine, r.budget, "without the server"); err != nil {
		return err
	}
	// From here on the run is a private matter of this terminal.
	r.record = false
	why := "No server can be reached. Start one with `signalbox up`."
	if unable := (record.UnableError{}); errors.As(err, &unable) {
		why = unable.Error()
	} else if e := fault.From(err); e.Code == fault.Unauthenticated {
		why = e.Message
	}
	r.Err.Print("The run is not recorded. %s", why)
	return nil
}

// hooksAgent is the agent as which the hooks of the run ask: that of the key in the environment for a server
// elsewhere, and that of the socket on this machine. It is "" if nobody knows; then the run hands on nothing.
func (r *runner) hooksAgent(ctx context.Context, cl *api.Client) string {
	if !r.Elsewhere("") {
		return r.local
	}
	key := harness.Key()
	var me task.Me
	if key == "" || cl.As(key).Call(ctx, api.Get("/amp/me"), &me) != nil {
		return ""
	}
	return me.Agent
}

// token is that of what the run hands on to its hooks, "" for nothing.
func (r *runner) token() string {
	if r.opened.Handoff == nil {
		return ""
	}
	return r.opened.Handoff.Token
}

// recording is where runs are recorded. The address is looked up for each call, since a
// server that restarts may move.
func recording(a *command.App, c *api.Client) record.Server {
	return record.Server{URL: a.Address, Token: c.Token, HTTP: record.NewHTTP()}
}

// execute runs the CLI to its end, and then waits for the recording, at most drain.
// last is the last event. The recording outlives ctx: that a run was cancelled is recorded too.
func (r *runner) execute(ctx context.Context, show func(engine.Event, engine.Usage),
	drain time.Duration,
) (last engine.Event, err error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	uproot, err := r.plant(ctx)
	if err != nil {
		return last, err
	}
	defer uproot()
	unguard, err := r.guard(ctx)
	if err != nil {
		return last, err
	}
	defer unguard()
	if r.user != "" {
		r.spec.Env = append(r.spec.Env, process.UserVariable+"="+r.user)
	}
	if token := r.token(); token != "" {
		server, err := r.Address()
		if err != nil {
			return last, err
		}
		r.spec.Env = append(r.spec.Env, process.Hand(token, server)...)
	}
	unmeter, err := r.meter(ctx, stop)
	if err != nil {
		return last, err
	}
	defer unmeter()
	unbox, err := r.enter(ctx)
	if err != nil {
		return last, err
	}
	defer unbox()
	// Claude Code can stop by itself at a cost, which is sooner than we can after an event.
	r.spec.Job.MaxUSD = r.budget.USD
	locks := process.UserLocks()
	r.spec.Lock = locks.Take
	r.spec.Stop = r.mustStop
	var recorder *record.Recorder // nil without a server
	r.spec.Asking = func() bool {
		return r.desk != nil && r.desk.Asking() || recorder != nil && recorder.Asking()
	}
	emit := func(e engine.Event, u engine.Usage) {
		if changed, ok := r.grown(e); ok { // before the last event
			if recorder != nil {
				recorder.Event(changed, u)
			}
			show(changed, u)
		}
		e = r.checkAsked(e)
		if recorder != nil {
			recorder.Event(e, u)
		}
		last = e
		show(e, u)
	}
	// Without a server, the file lock alone keeps runs of one session apart.
	if !r.record {
		process.Run(ctx, r.spec, emit)
		return last, nil
	}
	defer r.server.HTTP.CloseIdleConnections()
	// The recorder stops the run through the same context that the person's Ctrl-C ends.
	recorder = r.server.Begin(r.opened.ID, r.opened.Events, stop)
	recorder.Awaited, recorder.Trouble = r.awaited, r.trouble
	// Reporting goes on after ctx has ended, so that the end of a cancelled run is
	// recorded; drain bounds it.
	reporting, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	var wg sync.WaitGroup
	wg.Go(func() { err = recorder.Run(reporting) })
	// A run waits for most of its time, and many may run on one machine.
	command.Thrift()
	r.spec.Lock = bothLocks(locks.Take, recorder.Lock)
	process.Run(ctx, r.spec, emit)
	// The CLI is gone. What is left to do is to record its last events.
	recorder.Close()
	timer := time.AfterFunc(drain, giveUp)
	defer timer.Stop()
	wg.Wait()
	if err != nil {
		err = fault.Wrap(err, api.Unreachable, "The run could not be recorded completely.")
	}
	return last, err
}

// lock takes the lock of a session, and waits for it as long as ctx lasts.
type lock func(ctx context.Context, thread string) (release func(), err error)

// bothLocks takes one lock and then the other, and releases them in reverse order. The file
// lock comes first, since it is quick and keeps the server from being asked in vain.
func bothLocks(first, then lock) lock {
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

// checkAsked finds out whether an event of a supervised run shows something that nobody was asked about
// (RUN-45), or that the mode of the run does not allow (RUN-52). Such a run was stopped, whatever the CLI says of it.
func (r *runner) checkAsked(e engine.Event) engine.Event {
	if what := e.Exceeds(r.spec.Job.Mode); what != "" && r.unasked == "" && r.named {
		r.unasked = engine.Exceeded + ": " + what
	}
	if r.desk != nil && r.unasked == "" {
		r.unasked = r.desk.Unasked(e)
	}
	if no := false; r.unasked != "" && e.Type == engine.Completed {
		e.OK, e.Error, e.Cause, e.Outcome = &no, r.unasked, engine.ByPolicy, engine.ByPolicy.Outcome()
	}
	return e
}

// mustStop says why the run has to stop, the zero value if it may go on.
func (r *runner) mustStop(u engine.Usage) process.StoppedError {
	if r.unasked != "" {
		return process.StoppedError{Reason: r.unasked, Cause: engine.ByPolicy}
	}
	return process.StoppedError{Reason: r.overBudget(u), Cause: engine.ByBudget}
}

// overBudget says why the run has to stop, by what is known without the price table.
// The server checks the rest, after each report (RUN-32); this check stops a CLI also
// while the server is away.
func (r *runner) overBudget(u engine.Usage) string {
	switch {
	case r.budget.Tokens > 0 && u.Budgeted() >= r.budget.Tokens:
		return fmt.Sprintf("the run has used %d tokens, and its budget is %d", u.Budgeted(), r.budget.Tokens)
	case r.budget.USD > 0 && u.CostUSD != nil && *u.CostUSD >= r.budget.USD:
		return fmt.Sprintf("the run has cost $%.4f, and its budget is $%.4f", *u.CostUSD, r.budget.USD)
	}
	return ""
}
