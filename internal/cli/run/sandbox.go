package run

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/harness"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/sandbox"
	"signalbox/internal/server"
)

// boxing is what a run has of a sandbox.
type boxing struct {
	asked  *bool    // whether somebody wants one, nil if nobody has said
	boxed  bool     // it has one
	hosts  []string // what its agent may call, beside the engine's and those of the settings
	hidden []string // what is of the server
	own    string   // the folder of this run alone
	// changed is the folder in it that the CLI changes, "" for none.
	changed string
}

// check refuses a sandbox that cannot be had, before anything starts, and hosts that are none.
func (b *boxing) check(ctx context.Context) error {
	for _, host := range b.hosts {
		if _, err := sandbox.Target(host); err != nil {
			return err
		}
	}
	if b.boxed = b.asked != nil && *b.asked; !b.boxed {
		return nil
	}
	return sandbox.Check(ctx)
}

// hidden are the files and folders of the server that this command knows.
func hidden(a *command.App, config *server.Config) (paths []string) {
	for _, path := range []string{a.DataDir(), config.Data, config.File, config.Shared} {
		if path == "" {
			continue
		}
		if path, err := filepath.Abs(path); err == nil && !slices.Contains(paths, path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// enter puts the run into its sandbox, if it has one, until leave is called. It gets an environment by list, as a run that
// a server starts, and of what is Signalbox's only what is for this run.
func (r *runner) enter(ctx context.Context) (leave func(), err error) {
	if !r.boxed {
		return func() {}, nil
	}
	j := r.spec.Job
	program, missing := exec.LookPath(r.spec.Engine.Command(j))
	if missing != nil { // the process says so, and starts nothing
		return func() {}, nil //nolint:nilerr // see there
	}
	if program, err = filepath.Abs(program); err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	s := sandbox.Spec{
		Engine: r.spec.Engine, Program: program, Dir: j.Dir, Own: r.own, Changed: r.changed, Self: self, Hidden: r.hidden,
		Unchanged: j.Mode == engine.Read,
	}
	if r.record { // without, there is no server for it
		if s.Server, err = r.Address(); err != nil {
			return nil, err
		}
	}
	metered := r.opened.Metered == run.Proxy
	if m := j.Metered; m != nil {
		s.Forward = append(s.Forward, strings.TrimSuffix(strings.TrimPrefix(m.URL, "http://"), "/v1"))
	}
	s.Hosts = slices.Concat(r.spec.Engine.Hosts(os.Getenv, metered), j.Settings.Hosts, r.hosts)
	if t := r.tree; t != nil {
		s.Dir = t.Dir
		if s.Beside, err = t.Shares(ctx); err != nil {
			return nil, err
		}
	}
	box, err := sandbox.Open(ctx, s)
	if err != nil {
		return nil, err
	}
	// The key of an agent, in the environment of a person, is for the agent's own commands. A token of an operator is none.
	if key := harness.Key(); engine.IsAgentKey(key) && !r.spec.Listed {
		r.spec.Env = append(r.spec.Env, "SIGNALBOX_KEY="+key)
	}
	r.spec.Listed, r.spec.Unset, r.spec.Wrap = true, append(r.spec.Unset, sandbox.Unset...), box.Wrap
	r.spec.Env = append(r.spec.Env, box.Env()...)
	if r.tree != nil {
		r.tree.Within(box.Look)
	}
	return box.Close, nil
}

// newInside is the command that runs in a sandbox before the CLI.
func newInside() *command.Command {
	c := &command.Command{
		Use: "inside -- PROGRAM ARGUMENTS", Short: "Run a program in the sandbox that was made for it", Hidden: true,
		Args: command.AnyArguments(),
	}
	var in sandbox.Inside
	c.Flags().StringVar(&in.Door, "door", "", "the socket that leads out")
	c.Flags().StringVar(&in.Proxy, "proxy", "", "where to listen as a proxy")
	c.Flags().StringArrayVar(&in.Forward, "forward", nil, "where to listen, and what that leads to")
	c.RunE = func(c *command.Command, args []string) error {
		if in.Command = args; len(args) == 0 || in.Door == "" {
			return command.Usage("This command is for sandboxes, which start it.")
		}
		command.Thrift()
		code, err := in.Run(c.Context())
		if err == nil && code != 0 {
			err = command.Exit(code, "")
		}
		return err
	}
	return c
}
