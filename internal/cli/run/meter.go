package run

import (
	"context"
	"os"

	"signalbox/internal/behalf"
	"signalbox/internal/cli/api"
	"signalbox/internal/fault"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/record"
	"signalbox/internal/task"
)

// unkept is the error about a budget that nobody would keep in a run that is not recorded: the server counts the
// calls of engines that do not say in time what they use, and knows what models cost.
func unkept(e *engine.Engine, b run.Budget, how string) error {
	switch {
	case b == (run.Budget{}):
		return nil
	case e.Late() != "":
		return fault.New(fault.InvalidRequest, "%s cannot be held to a budget %s: it %s. Start the server with `signalbox up` and "+
			"record the run, or run it without a budget.", e.Name, how, e.Late()).About("budget")
	case b.USD > 0 && !e.Costs():
		return fault.New(fault.InvalidRequest, "%s cannot be held to a budget in dollars %s: it does not say what a call costs. "+
			"Record the run, or use --budget-tokens.", e.Name, how).About("budget")
	}
	return nil
}

// led is the key with which the environment leads the engine's calls of models through the proxy of our server: that
// of an agent, or one of the provider that stands for an agent there.
func (r *runner) led() (key string, ok bool) {
	base, err := r.Address()
	if err != nil {
		return "", false
	}
	key, ok = r.spec.Engine.Meter().Led(os.Getenv, base)
	return key, ok && key != ""
}

// askMetered asks that the proxy counts the calls of a run: if they go there anyway, and if a budget cannot be kept
// otherwise (RUN-48).
func (r *runner) askMetered(ctx context.Context, cl *api.Client, n run.Request) run.Request {
	e := r.spec.Engine
	if e.Meter() == nil {
		return n
	}
	if key, ok := r.led(); ok && !engine.IsAgentKey(key) {
		n.Metered, n.MeterKey, n.Keyed = run.Proxy, roster.KeySum(key), true
		return n
	} else if ok {
		var me task.Me
		if cl.As(key).Call(ctx, api.Get("/amp/me"), &me) == nil {
			n.Metered, n.MeterAgent, n.Keyed = run.Proxy, me.Agent, r.providerKey() != ""
			return n
		}
	}
	if limited := r.budget != (run.Budget{}) || r.most != (run.Budget{}); limited && e.Late() != "" {
		n.Metered, n.Keyed = run.Proxy, r.providerKey() != ""
	}
	return n
}

// providerKey is the key of the provider in the environment, "" if there is none.
func (r *runner) providerKey() string {
	if key := os.Getenv(r.spec.Engine.Meter().Key); !engine.IsAgentKey(key) {
		return key
	}
	return ""
}

// meter leads the calls of models of a metered run through the proxy, until remove is called. An engine that is led
// there by its environment, and adds headers, only has to name the run. Others call us, and get no key.
func (r *runner) meter(ctx context.Context, stop context.CancelCauseFunc) (remove func(), err error) {
	if !r.record || r.opened.Metered != run.Proxy {
		return func() {}, nil
	}
	m := r.spec.Engine.Meter()
	key, led := r.led()
	if led && m.Headers != "" {
		headers := "X-Amp-Run: " + r.opened.ID
		if token := r.token(); token != "" { // the key may be another agent's than the one that has it
			headers += "\n" + behalf.WithinHeader + ": " + token
		}
		if others := os.Getenv(m.Headers); others != "" {
			headers = others + "\n" + headers
		}
		r.spec.Env = append(r.spec.Env, m.Headers+"="+headers)
		return func() {}, nil
	}
	metering := record.Metering{
		Run: r.opened.ID, Provider: m.Provider, Key: r.providerKey(), Within: r.token(), Stop: stop,
	}
	if led && engine.IsAgentKey(key) {
		metering.AgentKey = key
	}
	meter, err := r.server.StartMeter(ctx, metering)
	if err != nil {
		return nil, err
	}
	r.spec.Job.Metered = meter.Metered()
	r.spec.Env = append(r.spec.Env, meter.Env()...)
	r.spec.Unset = append(r.spec.Unset, m.Key, m.Base)
	return meter.Close, nil
}
