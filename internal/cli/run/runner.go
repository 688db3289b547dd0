package run

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/fault"
	"signalbox/internal/id"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/record"
)

// runner runs one run in this process.
type runner struct {
	*command.App
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
	v := newView(r.App, r.spec)
	last, stopped, err := r.execute(ctx, v.event, 30*time.Second)
	v.end(last)
	switch {
	case err != nil:
		return err
	case last.OK != nil && *last.OK:
		return nil
	case stopped != "":
		return command.Exit(command.ExitRefused, "")
	}
	return command.Exit(command.ExitFailed, "")
}

// open opens the run on the server, if there is one.
func (r *runner) open(ctx context.Context) error {
	r.spec.ID = id.New("run")
	if !r.record {
		return nil
	}
	cl, err := r.Client()
	if err == nil {
		r.server = recording(r.App, cl)
		host, _ := os.Hostname()
		j := r.spec.Job
		bounded, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		r.opened, err = r.server.Open(bounded, run.Request{
			Engine: r.spec.Engine.Name, Prompt: j.Prompt, Dir: j.Dir, Resume: j.Resume.Value, Model: j.Override,
			Budget: r.budget, Supervised: j.Supervised, Host: host, Recorded: true,
		})
	}
	if err == nil {
		r.spec.ID, r.budget = r.opened.ID, r.opened.Budget
		return nil
	}
	if refused := fault.From(err); refused.Code != fault.Internal && refused.Code != api.Unreachable &&
		refused.Code != fault.Unauthenticated {
		return refused // it is there, and says no
	}
	if r.spec.Job.Supervised {
		return fault.Wrap(err, api.Unreachable, "A supervised run needs the server. Start it with `signalbox up`.")
	}
	r.record = false
	why := "No server can be reached. Start one with `signalbox up`."
	if e := fault.From(err); e.Code == fault.Unauthenticated {
		why = e.Message
	}
	r.Err.Print("The run is not recorded. %s", why)
	return nil
}

// recording is where runs are recorded.
func recording(a *command.App, c *api.Client) record.Server {
	return record.Server{URL: a.Address, Token: c.Token, HTTP: record.NewHTTP()}
}

// execute runs it to its end, and to the end of the recording, for which it waits so long
// at the most. stopped is why it was told to stop.
func (r *runner) execute(ctx context.Context, show func(engine.Event, engine.Usage),
	drain time.Duration,
) (last engine.Event, stopped string, err error) {
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
	command.Thrift()
	r.spec.Lock = both(locks.Take, recorder.Lock)
	process.Run(ctx, r.spec, func(e engine.Event, u engine.Usage) { recorder.Event(e, u); emit(e, u) })
	stopped = cause(ctx)
	recorder.Close()
	timer := time.AfterFunc(drain, giveUp)
	defer timer.Stop()
	wg.Wait()
	if err != nil {
		err = fault.Wrap(err, api.Unreachable, "Not everything of the run could be recorded.")
	}
	return last, stopped, err
}

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
