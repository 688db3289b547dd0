package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"signalbox/client/ahp"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/harness"
	"signalbox/internal/clock"
	"signalbox/internal/fault"
	"signalbox/internal/server"
)

const (
	// callTime is how long one call of a hook takes at the most, beside --wait: more than the server
	// holds a call.
	callTime = 12 * time.Second
	// callMargin is what a CLI waits beyond that before it gives a hook up.
	callMargin = 8 * time.Second
)

// New is the group of commands `hook`.
func New(a *command.App) *command.Command {
	c := command.Group("hook", "Put agent CLIs under supervision, through their own hooks")
	c.Long = c.Short + ": " + strings.Join(Names(), ", ") +
		".\n\n`signalbox hook install NAME` registers the hooks. From then on the CLI asks before it\n" +
		"uses a tool or takes a prompt, and tells what came of it."
	for _, t := range Tools {
		c.AddCommand(newRun(a, t))
	}
	c.AddCommand(newInstall(a), newUninstall(a))
	return c
}

// asker asks the server in the place of a CLI: how it finds the server, and how patient it is.
type asker struct {
	*command.App
	keyFile string
	wait    time.Duration
	final   bool // a yes is the last word
}

func (f *asker) addFlags(c *command.Command) {
	c.Flags().StringVar(&f.keyFile, "key-file", "",
		"a file with a key of the agent, for a server elsewhere (the key itself: SIGNALBOX_KEY)")
	c.Flags().DurationVar(&f.wait, "wait", 0,
		"how long to wait for a person's decision, beyond the seconds that the server holds a call")
}

func newRun(a *command.App, t *Tool) *command.Command {
	c := &command.Command{
		Use: t.Name, Short: "The hook of " + t.Title + ": reads what it is about to do, and answers",
		Long: "Is started by " + t.Title + ", once `signalbox hook install " + t.Name +
			"` has registered it. On the server's\n" +
			"machine it uses the Unix socket in the data folder, and elsewhere, with --server or\n" +
			"SIGNALBOX_SERVER, HTTP with a key of the agent.\n\n" +
			"What cannot be asked, because the server is away, is refused.",
		Args: command.NoArguments(),
	}
	f := asker{App: a}
	f.addFlags(c)
	via := c.Flags().String("via", "",
		"the socket of the process that watches the run, and asks and waits in place of the hook")
	_ = c.Flags().MarkHidden("via") // it is there
	c.Flags().BoolVar(&f.final, "final", false, "a yes is the last word: the CLI's own permissions are not asked after it")
	c.RunE = func(c *command.Command, _ []string) error {
		out := f.run(c.Context(), t, *via)
		_, _ = a.Out.Write(out.Stdout)
		if out.Code != CodeGoOn {
			return command.Exit(out.Code, out.Stderr)
		}
		return nil
	}
	return c
}

// run answers one call of a CLI, or has the process at the socket answer it.
func (f *asker) run(ctx context.Context, t *Tool, via string) Output {
	reading, cancel := context.WithTimeout(ctx, callTime+f.wait)
	defer cancel()
	text, err := readAll(reading, f.In)
	switch {
	case err != nil:
		return t.Refuse("Signalbox refuses what it cannot read: " + err.Error() + ".")
	case via != "":
		return handOn(ctx, t, text, via)
	}
	defer time.AfterFunc(time.Second, command.Thrift).Stop() // by then it waits
	return f.answer(reading, t, text, os.Getenv)
}

// answer is what is said to a CLI. Whatever goes wrong, the answer to a question is no.
func (f *asker) answer(ctx context.Context, t *Tool, text []byte, getenv func(string) string) Output {
	ctx, cancel := context.WithTimeout(ctx, callTime+f.wait)
	defer cancel()
	call, err := t.Read(text, getenv)
	if err != nil {
		return t.Refuse("Signalbox refuses what it cannot read: " + err.Error() + ".")
	}
	call.Final = f.final
	d, err := f.ask(ctx, call)
	switch {
	case err != nil && call.Asks():
		return call.Refuse("Signalbox cannot be asked, so this is refused: " + err.Error() +
			". Start the server with `signalbox up`, or tell the person who runs it.")
	case err != nil:
		return Output{Stderr: "Signalbox was not told of this: " + err.Error(), Code: CodeWarn}
	case call.Asks():
		return call.Answer(d)
	}
	return Output{}
}

// ask asks the server about a call, or tells it. While the answer is later, it asks again
// as long as --wait allows.
func (f *asker) ask(ctx context.Context, call *Call) (ahp.Decision, error) {
	began := time.Now()
	c, err := f.dial(ctx, ahp.WithSession(call.Event.SessionID, call.Event.AgentID))
	if err != nil {
		return ahp.Decision{}, err
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Handshake(ctx, string(call.Event.Type)); err != nil {
		return ahp.Decision{}, err
	}
	if !call.Asks() {
		return ahp.Decision{}, c.Tell(ctx, call.Event)
	}
	for {
		d, err := c.Decide(ctx, call.Event)
		if err != nil || d.Word != "defer" || time.Since(began)+d.RetryAfter > f.wait {
			return d, err
		}
		clock.Pause(ctx, d.RetryAfter)
		if ctx.Err() != nil {
			return d, nil // nobody has decided, which is what d says
		}
	}
}

// dial reaches the server's AHP as harness stdio does, with POSTs where it is elsewhere.
func (f *asker) dial(ctx context.Context, session ahp.Option) (*ahp.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, harness.DialTime)
	defer cancel()
	key := harness.Key()
	if f.keyFile != "" {
		text, err := os.ReadFile(f.keyFile)
		if err != nil {
			return nil, err
		}
		key = strings.TrimSpace(string(text))
	}
	address, err := harness.Address(f.App, key)
	if err != nil {
		return nil, err
	}
	return ahp.Dial(ctx, address, ahp.WithKey(key), session)
}

// readAll reads what a CLI says, unless that takes too long or is too much.
func readAll(ctx context.Context, in io.Reader) ([]byte, error) {
	type outcome struct {
		text []byte
		err  error
	}
	done := make(chan outcome, 1)
	go func() { // it may be left behind in a read that nobody can end
		text, err := io.ReadAll(io.LimitReader(in, harness.MaxMessage+1))
		if err == nil && len(text) > harness.MaxMessage {
			err = fmt.Errorf("it is longer than %d bytes", harness.MaxMessage)
		}
		done <- outcome{text, err}
	}()
	select {
	case o := <-done:
		return o.text, o.err
	case <-ctx.Done():
		return nil, errors.New("it has no end")
	}
}

func newInstall(a *command.App) *command.Command {
	c := &command.Command{
		Use: "install NAME", Short: "Register the hooks in a CLI's settings", ValidArgs: Names(),
		Long: "Adds the hooks to the CLI's settings: those of the person, or with --project those of the\n" +
			"project in this folder. Everything else in them stays as it is, and " +
			"`signalbox hook\nuninstall` puts them back.\n\n" +
			"The hooks talk to the server that this command would talk to. With --wait the CLI waits so\n" +
			"long for a person's decision; without it, it is told to try again after a few seconds.",
		Example: "  signalbox hook install claude-code\n  signalbox hook install codex --wait 10m\n" +
			"  signalbox hook install gemini --project --server https://signalbox.example --key-file ~/.signalbox-key",
		Args: command.Exactly(1, "the name of a CLI: "+strings.Join(Names(), ", ")),
	}
	f := asker{App: a}
	f.addFlags(c)
	project := projectFlag(c)
	c.RunE = func(_ *command.Command, args []string) error {
		t, file, err := settingsOf(args[0], *project)
		if err != nil {
			return err
		}
		reach, err := f.reach()
		if err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		changed, err := t.Install(file, t.Command(program, reach...), callTime+f.wait+callMargin)
		if err != nil {
			return leftAlone(err, file)
		}
		sayInstalled(a, t, file, changed)
		return nil
	}
	return c
}

// reach is how a hook that runs in any folder finds the server that this command would
// talk to.
func (f *asker) reach() ([]string, error) {
	var reach []string
	if f.Elsewhere("") {
		base, err := f.Address()
		if err != nil {
			return nil, err
		}
		reach = []string{"--server", base}
	} else {
		dir, err := filepath.Abs(f.DataDir())
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(dir, server.URLFile)); err != nil {
			f.Err.Print("No server has been started with its data in %s yet. Until then everything is refused.", dir)
		}
		reach = []string{"--data", dir}
	}
	if f.keyFile != "" {
		file, err := filepath.Abs(f.keyFile)
		if err != nil {
			return nil, err
		}
		reach = append(reach, "--key-file", file)
	}
	if f.wait > 0 {
		reach = append(reach, "--wait", f.wait.String())
	}
	return reach, nil
}

func sayInstalled(a *command.App, t *Tool, file string, changed bool) {
	if !changed {
		a.Out.Print("%s is under supervision already, by %s.", t.Title, file)
		return
	}
	a.Out.Print("%s is under supervision from its next session on, by %s.", t.Title, file)
	switch t.Name {
	case "codex":
		a.Out.Print("Codex skips hooks that nobody has reviewed: start it, and trust them with /hooks.")
	case "amp":
		a.Out.Print("What the policy allows, Amp does without asking. `amp permissions list` shows the rule.")
	}
}

func newUninstall(a *command.App) *command.Command {
	c := &command.Command{
		Use: "uninstall NAME", Short: "Take the hooks out of a CLI's settings", ValidArgs: Names(),
		Long: "Puts the CLI's settings back as they were before `signalbox hook install`, byte for byte\n" +
			"if nothing else has changed in them, and else without the hooks.",
		Args: command.Exactly(1, "the name of a CLI: "+strings.Join(Names(), ", ")),
	}
	project := projectFlag(c)
	c.RunE = func(_ *command.Command, args []string) error {
		t, file, err := settingsOf(args[0], *project)
		if err != nil {
			return err
		}
		changed, err := t.Uninstall(file)
		if err != nil {
			return leftAlone(err, file)
		}
		if changed {
			a.Out.Print("%s is no longer under supervision: its hooks are gone from %s.", t.Title, file)
		} else {
			a.Out.Print("There are no hooks of Signalbox in %s.", file)
		}
		return nil
	}
	return c
}

func projectFlag(c *command.Command) *bool {
	return c.Flags().Bool("project", false, "the settings of the project in this folder, instead of the person's")
}

// settingsOf finds a tool and its settings.
func settingsOf(name string, project bool) (*Tool, string, error) {
	t := Named(name)
	if t == nil {
		return nil, "", command.Usage("%q is not a CLI that is known here. %s", name, fault.DidYouMean(name, Names()))
	}
	var folder string
	home, err := os.UserHomeDir()
	if project {
		folder, err = os.Getwd()
	}
	if err != nil {
		return nil, "", err
	}
	return t, t.File(folder, home, os.Getenv), nil
}

func leftAlone(err error, file string) error {
	return fault.Wrap(err, fault.InvalidConfig,
		"The settings in %s are left as they are: they cannot be read or written. "+
			"Repair them, or say with --project that you mean those of this folder.", file)
}
