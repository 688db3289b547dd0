package hook

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
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
	// callTime is how long one call of a hook takes at most, beside --wait. It is longer
	// than the server holds a call (AHP-34), so the server's "not decided yet" arrives.
	callTime = 12 * time.Second
	// callMargin is what the CLI waits beyond that before it gives up on the hook. It must
	// never give up first: CLIs go on when a hook times out.
	callMargin = 8 * time.Second
)

// New is the command group `hook`.
func New(a *command.App) *command.Command {
	c := command.Group("hook", "Put agent CLIs under supervision, through their own hooks")
	c.Long = c.Short + ": " + strings.Join(Names(), ", ") +
		".\n\n`signalbox hook install NAME` registers the hooks. From then on the CLI asks before it\n" +
		"uses a tool or takes a prompt, and reports the outcome."
	for _, t := range Tools {
		c.AddCommand(newHook(a, t))
	}
	for _, t := range runTools {
		own := newHook(a, t)
		own.Hidden = true
		c.AddCommand(own)
	}
	c.AddCommand(newInstall(a), newUninstall(a))
	return c
}

// asker asks the server in place of a CLI: how it finds the server, and how long it
// waits.
type asker struct {
	*command.App
	keyFile string
	wait    time.Duration
	// final says that what a person has approved is the last word, and alone that every permission is, since
	// nobody is there whom the CLI could ask (RUN-43).
	final, alone bool
	// folder is where the spool is, "" for none, and trust the key of the server whose lists of tools hold while it
	// cannot be reached.
	folder, trust string
	// as is on whose behalf a supervised run is, whatever its environment says.
	as Behalf
	// noted is told the answer to each call before the CLI is; nil tells nobody.
	noted func(*Call, Output)
}

// addFlags adds the flags that a hook and its installation share.
func (f *asker) addFlags(c *command.Command) {
	c.Flags().StringVar(&f.keyFile, "key-file", "",
		"a file with a key of the agent, for a server elsewhere (the key itself: SIGNALBOX_KEY)")
	c.Flags().DurationVar(&f.wait, "wait", 0,
		"how long to wait for a person's decision, beyond the eight seconds that the server holds a call")
	c.Flags().BoolVar(&f.final, "final", false,
		"what a person has approved is final: the CLI does not ask its own permissions about it again")
}

// newHook is the command that a CLI starts for each of its hooks.
func newHook(a *command.App, t *Tool) *command.Command {
	c := &command.Command{
		Use: t.Name, Short: "The hook of " + t.Title + ": reads a step on standard input and answers",
		Long: t.Title + " starts this command once `signalbox hook install " + t.Name + "`\n" +
			"has registered it. On the server's machine it uses the Unix socket in the data folder.\n" +
			"Elsewhere, with --server or SIGNALBOX_SERVER, it uses HTTP with a key of the agent.\n\n" +
			"While the server cannot be reached, everything is denied, unless a rule says on_unreachable and\n" +
			"the hook was installed with --offline.",
		Args: command.NoArguments(),
	}
	f := asker{App: a}
	f.addFlags(c)
	f.addSpoolFlags(c)
	via := c.Flags().String("via", "",
		"the socket of the supervisor, which asks and waits in place of the hook")
	// Only the guard of a supervised run passes it.
	_ = c.Flags().MarkHidden("via") // it is there
	c.RunE = func(c *command.Command, _ []string) error {
		out := f.respond(c.Context(), t, *via)
		_, _ = a.Out.Exactly().Write(out.Stdout)
		if out.Code != CodeGoOn {
			return command.Exit(out.Code, out.Stderr)
		}
		return nil
	}
	return c
}

// respond answers one call of a CLI, or has the process at the socket via answer it.
func (f *asker) respond(ctx context.Context, t *Tool, via string) Output {
	reading, cancel := context.WithTimeout(ctx, callTime+f.wait)
	defer cancel()
	text, err := readAll(reading, f.In)
	switch {
	case err != nil:
		return t.Refuse("Signalbox refuses what it cannot read: " + err.Error() + ".")
	case via != "":
		return askDesk(ctx, t, text, via)
	}
	// A hook that still waits after a second waits for a person, and gives its memory back.
	defer time.AfterFunc(time.Second, command.Thrift).Stop() // by then it waits
	return f.answer(reading, t, text, environment)
}

// answer is what the CLI is told. Whatever goes wrong, a question is answered with a
// denial; a report that could not be sent is a warning, since the step has happened.
func (f *asker) answer(ctx context.Context, t *Tool, text []byte, getenv func(string) string) (out Output) {
	ctx, cancel := context.WithTimeout(ctx, callTime+f.wait)
	defer cancel()
	call, err := t.Read(text, getenv)
	if err != nil {
		return t.Refuse("Signalbox refuses what it cannot read: " + err.Error() + ".")
	}
	if f.noted != nil {
		defer func() { f.noted(call, out) }()
	}
	call.onBehalf(f.as, getenv)
	d, err := f.askOrKeep(ctx, call)
	call.Final = f.alone || f.final && d.ApprovedBy() != ""
	switch {
	case err != nil && call.Asks():
		return call.Refuse(harness.Unasked(err))
	case err != nil:
		return Output{Stderr: "Signalbox did not get this report: " + err.Error(), Code: CodeWarn}
	case call.Asks():
		return call.Answer(d)
	}
	return Output{}
}

// spool is what the hook keeps while the server cannot be reached, nil for nothing.
func (f *asker) spool() (*ahp.Spool, error) {
	if f.folder == "" {
		return nil, nil
	}
	return ahp.OpenSpool(f.folder, f.trust)
}

// askOrKeep asks the server. If there is none, the spool answers, which refuses what no rule allows in that time.
func (f *asker) askOrKeep(ctx context.Context, call *Call) (ahp.Decision, error) {
	spool, broken := f.spool()
	d, err := f.ask(ctx, call, spool)
	switch {
	case err != nil && broken != nil:
		err = fmt.Errorf("%w; and what happens meanwhile cannot be kept: %w", err, broken)
	case err != nil && spool != nil && call.Asks() && d.Word == "":
		return spool.Answer(call.Event, err) // there was not even a connection
	}
	return d, err
}

// ask asks the server about a call, or reports it. While the decision is to ask again
// later, it does, as long as --wait allows. Each round uses the same event, so all of
// them find the same gate (AHP-41).
func (f *asker) ask(ctx context.Context, call *Call, spool *ahp.Spool) (ahp.Decision, error) {
	began := time.Now()
	c, err := f.dial(ctx, ahp.WithSession(call.Event.SessionID, call.Event.AgentID), ahp.WithSpool(spool))
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
		// Another round that would end after --wait is not begun: the CLI's own timeout is
		// close behind it.
		if err != nil || d.Word != "defer" || time.Since(began)+d.RetryAfter > f.wait {
			return d, err
		}
		clock.Pause(ctx, d.RetryAfter)
		if ctx.Err() != nil {
			return d, nil // nobody has decided, which is what d says
		}
	}
}

// place is where the server speaks AHP, and the key of the agent, "" if the socket says who it is.
func (f *asker) place() (address, key string, err error) {
	key = harness.Key()
	if f.keyFile != "" {
		text, err := os.ReadFile(f.keyFile)
		if err != nil {
			return "", "", err
		}
		key = strings.TrimSpace(string(text))
	}
	address, err = harness.Address(f.App, key)
	return address, key, err
}

// dial connects to the server's AHP: its Unix socket on this machine, POSTs elsewhere.
func (f *asker) dial(ctx context.Context, options ...ahp.Option) (*ahp.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, harness.DialTime)
	defer cancel()
	address, key, err := f.place()
	if err != nil {
		return nil, err
	}
	if err := harness.CheckPort(address); err != nil {
		return nil, err
	}
	return ahp.Dial(ctx, address, append(options, ahp.WithKey(key), ahp.WithCheck(harness.CheckSocket))...)
}

// readAll reads what a CLI writes, unless it takes too long or is too much.
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

// newInstall is `hook install`.
func newInstall(a *command.App) *command.Command {
	c := &command.Command{
		Use: "install NAME", Short: "Register the hooks in a CLI's settings", ValidArgs: Names(),
		Long: "Adds the hooks to the CLI's settings: yours, or with --project those of the project in\n" +
			"this folder. Everything else in the file stays as it is, and `signalbox hook uninstall`\n" +
			"puts it back.\n\n" +
			"The hooks use the server that this command would use. With --wait the CLI waits that long\n" +
			"for a person's decision; without it, the model is told to try again after a few seconds.\n\n" +
			"What the policy allows, the CLI's own permissions still have to allow. So Claude Code asks at its\n" +
			"terminal about a call that a person has approved here. With --final it does not: an approval by a\n" +
			"person, and nothing else, is the last word.",
		Example: `  signalbox hook install claude-code --final
  signalbox hook install codex --wait 10m
  signalbox hook install gemini --project --server https://signalbox.example --key-file ~/.signalbox-key`,
		Args: command.Exactly(1, "the name of a CLI: "+strings.Join(Names(), ", ")),
	}
	f := asker{App: a}
	f.addFlags(c)
	project := projectFlag(c)
	offline := c.Flags().Bool("offline", false,
		"go on with what rules with on_unreachable allow while the server cannot be reached, and keep what happened")
	c.RunE = func(c *command.Command, args []string) error {
		t, file, err := settingsOf(args[0], *project)
		if err != nil {
			return err
		}
		if f.final && t.yes == nil {
			return command.Usage("%s", t.noFinal())
		}
		reach, err := f.reach()
		if err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		// The CLI has to wait longer than the hook, which has to wait longer than the server.
		if *offline {
			more, err := f.trustServer(c.Context())
			if err != nil {
				return err
			}
			reach = append(reach, more...)
		}
		e := Entry{t.Command(program, reach...), callTime + f.wait + callMargin}
		undo, err := f.reportInstall(c.Context(), t, file, e)
		if err != nil {
			return err
		}
		changed, err := t.Install(file, e.Command, e.Within)
		if err != nil {
			undo()
			return settingsError(err, file)
		}
		printInstalled(a, t, file, changed, f.final)
		return nil
	}
	return c
}

// reach are the flags by which a hook finds the server that this command would talk to.
// A hook runs in any folder and without this environment, so paths are absolute.
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
		// Only a warning: the hooks may be installed before the server is started for the first
		// time.
		if _, err := os.Stat(filepath.Join(dir, server.URLFile)); err != nil {
			f.Err.Print("No server has been started with its data in %s yet. Until then everything is refused.", dir)
		}
		// The data folder and not the socket: the hook looks for the socket itself, wherever
		// later versions put it.
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
	if f.final {
		reach = append(reach, "--final")
	}
	return reach, nil
}

// printInstalled tells what was done, and what the person still has to do.
func printInstalled(a *command.App, t *Tool, file string, changed, final bool) {
	if !changed {
		a.Out.Print("%s is under supervision already, by %s.", t.Title, file)
		return
	}
	a.Out.Print("%s is under supervision from its next session on, by %s.", t.Title, file)
	switch {
	case t.Name == "codex":
		a.Out.Print("Codex skips hooks that nobody has reviewed: start it, and trust them with /hooks.")
	case t.Name == "amp":
		a.Out.Print("What the policy allows, Amp does without asking. `amp permissions list` shows the rule.")
	case final:
		a.Out.Print("What a person approves here is done without asking again at its terminal.")
	case t.yes != nil:
		a.Out.Print("It still asks at its terminal about what a person has approved here, unless its own permissions " +
			"allow it. `signalbox hook install claude-code --final` makes an approval the last word.")
	}
}

// noFinal says why a CLI has no --final.
func (t *Tool) noFinal() string {
	if t.delegate {
		return t.Title + " needs no --final: there the policy has the last word always."
	}
	return t.Title + " takes no last word from a hook, so it cannot be installed with --final. " +
		"Its own permissions say what it asks about."
}

// newUninstall is `hook uninstall`.
func newUninstall(a *command.App) *command.Command {
	c := &command.Command{
		Use: "uninstall NAME", Short: "Remove the hooks from a CLI's settings", ValidArgs: Names(),
		Long: "Puts the CLI's settings back as they were before `signalbox hook install`: byte for byte\n" +
			"if nothing else has changed in them, otherwise only the hooks are removed.",
		Args: command.Exactly(1, "the name of a CLI: "+strings.Join(Names(), ", ")),
	}
	project := projectFlag(c)
	f := asker{App: a}
	c.RunE = func(c *command.Command, args []string) error {
		t, file, err := settingsOf(args[0], *project)
		if err == nil {
			err = f.reportUninstall(c.Context(), file)
		}
		if err != nil {
			return err
		}
		changed, err := t.Uninstall(file)
		if err != nil {
			return settingsError(err, file)
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

// projectFlag adds --project, which install and uninstall share.
func projectFlag(c *command.Command) *bool {
	return c.Flags().Bool("project", false, "the settings of the project in this folder, instead of yours")
}

// settingsOf finds a CLI by its name, and the file with its settings.
func settingsOf(name string, project bool) (*Tool, string, error) {
	t := Named(name)
	if t == nil || !slices.Contains(Tools, t) {
		return nil, "", command.Usage("%q is not a known CLI. %s", name, fault.DidYouMean(name, Names()))
	}
	var folder string
	home, err := os.UserHomeDir()
	if project {
		folder, err = os.Getwd()
	}
	if err != nil {
		return nil, "", err
	}
	file, err := realFile(t.File(folder, home, os.Getenv))
	return t, file, err
}

// settingsError is the error about settings that were not changed because they cannot be
// read or written.
func settingsError(err error, file string) error {
	return fault.Wrap(err, fault.InvalidConfig,
		"The settings in %s are left as they are: they cannot be read or written. "+
			"Repair them, or say with --project that you mean those of this folder.", file)
}
