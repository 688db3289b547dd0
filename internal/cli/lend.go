package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"time"

	"signalbox/internal/roster"
	"signalbox/internal/wire"
)

// lentAgent is an agent for the time of one command.
type lentAgent struct {
	name, key string
	giveBack  func(context.Context) error
}

// agentFlags are how a command is given an agent of its user's.
type agentFlags struct{ name, key string }

// agent is the one that was given, or one that is made with the operator's token and
// removed when it is given back. operator is called only if it is needed.
func (f agentFlags) agent(ctx context.Context, prefix string, operator func() (*client, error)) (lentAgent, error) {
	switch {
	case f.key != "" && f.name != "":
		return lentAgent{f.name, f.key, func(context.Context) error { return nil }}, nil
	case cmp.Or(f.key, f.name) != "":
		return lentAgent{}, usage("--key and --agent go together: the key of an agent, and its name.")
	}
	c, err := operator()
	if err != nil {
		return lentAgent{}, err
	}
	return c.lend(ctx, prefix)
}

// lend makes an agent that nothing limits.
func (c *client) lend(ctx context.Context, prefix string) (lentAgent, error) {
	in := roster.NewAgent{Name: prefix + strings.ToLower(rand.Text()[:8])}
	var added roster.AddedAgent
	if err := c.call(ctx, http.MethodPost, "/ops/agents", in, &added); err != nil {
		return lentAgent{}, err
	}
	lent := lentAgent{in.Name, added.Keys[roster.SignalKey], func(ctx context.Context) error {
		// Also when the command was stopped by Ctrl-C.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return c.call(ctx, http.MethodDelete, agentPath(in.Name, ""), nil, nil)
	}}
	err := c.call(ctx, http.MethodPatch, agentPath(in.Name, ""), roster.AgentChange{RateLimit: wire.Raw("0")}, &roster.Agent{})
	if err != nil {
		_ = lent.giveBack(ctx)
		return lentAgent{}, err
	}
	return lent, nil
}
