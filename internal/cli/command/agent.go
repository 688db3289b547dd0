package command

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/api"
)

// AgentFlags let a user name an agent of theirs, by --agent and --key, in place of one
// that the command would make. They are given together or not at all.
type AgentFlags struct{ Name, Key string }

// Add gives a command the flags --key and --agent.
func (f *AgentFlags) Add(c *cobra.Command, key string) {
	c.Flags().StringVar(&f.Key, "key", "", key)
	c.Flags().StringVar(&f.Name, "agent", "", "the name of that agent")
}

// Agent is the one that was given, or one that is made with the operator's token and removed when
// it is given back. operator is called only if it is needed.
func (f AgentFlags) Agent(
	ctx context.Context, prefix string, operator func() (*api.Client, error),
) (api.LentAgent, error) {
	switch {
	case f.Key != "" && f.Name != "":
		return api.LentAgent{Name: f.Name, Key: f.Key, GiveBack: func(context.Context) error { return nil }}, nil
	case cmp.Or(f.Key, f.Name) != "":
		return api.LentAgent{}, Usage("--key and --agent go together: the key of an agent, and its name.")
	}
	c, err := operator()
	if err != nil {
		return api.LentAgent{}, err
	}
	return c.Lend(ctx, prefix)
}
