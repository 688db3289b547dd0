package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"signalbox/client/ahp"
	"signalbox/internal/cli/hook"
	"signalbox/internal/fault"
	"signalbox/internal/harness"
	"signalbox/internal/server"
)

const (
	// hookTime is how long a hook takes at the most, beside --wait: more than the server
	// holds a call.
	hookTime = 12 * time.Second
	// hookMargin is what a CLI waits beyond that before it gives a hook up.
	hookMargin = 8 * time.Second
)

func newHook(a *app) *cobra.Command {
	c := group("hook", "Put agent CLIs under supervision, through their own hooks")
	c.Long = c.Short + ": " + strings.Join(hook.Names(), ", ") + ".\n\n`signalbox hook install NAME` registers the hooks. From then on the CLI asks before it\nuses a tool or takes a prompt, and tells what came of it."
	for _, t := range hook.Tools {
		c.AddCommand(newHookRun(a, t))
	}
	c.AddCommand(newHookInstall(a), newHookUninstall(a))
	return c
}

// hookFlags are how a hook finds the server, and how patient it is.
type hookFlags struct {
	keyFile string
	wait    time.Duration
	via     string // of a supervised run: see run_guard.go
	final   bool
}

func (f *hookFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.keyFile, "key-file", "", "a file with a key of the agent, for a server elsewhere (the key itself: SIGNALBOX_KEY)")
	c.Flags().DurationVar(&f.wait, "wait", 0, "how long to wait for a person's decision, beyond the seconds that the server holds a call")
}

func newHookRun(a *app, t *hook.Tool) *cobra.Command {
	c := &cobra.Command{
		Use: t.Name, Short: "The hook of " + t.Title + ": reads what it is about to do, and answers",
		Long: "Is started by " + t.Title + ", once `signalbox hook install " + t.Name + "` has registered it. On the server's\nmachine it uses the Unix socket in the data folder, and elsewhere, with --server or\nSIGNALBOX_SERVER, HTTP with a key of the agent.\n\n" +
			"What cannot be asked, because the server is away, is refused.",
		Args: exactly(0, "no arguments"),
	}
	var f hookFlags
	f.add(c)
	c.Flags().StringVar(&f.via, "via", "", "the socket of the process that watches the run, and asks and waits in place of the hook")
	_ = c.Flags().MarkHidden("via") // it is there
	c.Flags().BoolVar(&f.final, "final", false, "a yes is the last word: the CLI's own permissions are not asked after it")
	c.RunE = func(c *cobra.Command, _ []string) error {
		out := a.runHook(c.Context(), t, f)
		_, _ = a.out.Write(out.Stdout)
		if out.Code != hook.CodeGoOn {
			return exitError{out.Stderr, out.Code}
		}
		return nil
	}
	return c
}

// exitError ends a command with a code of its own.
type exitError struct {
	text string
	code int
}

func (e exitError) Error() string { return e.text }

// runHook answers one call of a CLI.
func (a *app) runHook(ctx context.Context, t *hook.Tool, f hookFlags) hook.Output {
	reading, cancel := context.WithTimeout(ctx, hookTime+f.wait)
	defer cancel()
	text, err := readAll(reading, a.in)
	switch {
	case err != nil:
		return t.Refuse("Signalbox refuses what it cannot read: " + err.Error() + ".")
	case f.via != "":
		return handOn(ctx, t, text, f.via)
	}
	defer time.AfterFunc(time.Second, thrift).Stop() // by then it waits
	return a.answer(reading, t, text, os.Getenv, f)
}

// answer is what is said to a CLI. Whatever goes wrong, the answer to a question is no.
func (a *app) answer(ctx context.Context, t *hook.Tool, text []byte, getenv func(string) string, f hookFlags) hook.Output {
	ctx, cancel := context.WithTimeout(ctx, hookTime+f.wait)
	defer cancel()
	call, err := t.Read(text, getenv)
	if err != nil {
		return t.Refuse("Signalbox refuses what it cannot read: " + err.Error() + ".")
	}
	call.Final = f.final
	d, err := a.ask(ctx, call, f)
	switch {
	case err != nil && call.Asks():
		return call.Refuse("Signalbox cannot be asked, so this is refused: " + err.Error() + ". Start the server with `signalbox up`, or tell the person who runs it.")
	case err != nil:
		return hook.Output{Stderr: "Signalbox was not told of this: " + err.Error(), Code: hook.CodeWarn}
	case call.Asks():
		return call.Answer(d)
	}
	return hook.Output{}
}

// ask asks the server about a call, or tells it. While the answer is later, it asks again
// as long as --wait allows.
func (a *app) ask(ctx context.Context, call *hook.Call, f hookFlags) (ahp.Decision, error) {
	began := time.Now()
	c, err := a.hookDial(ctx, f, ahp.WithSession(call.Event.SessionID, call.Event.AgentID))
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
		select {
		case <-time.After(d.RetryAfter):
		case <-ctx.Done():
			return d, nil
		}
	}
}

// hookDial reaches the server's AHP as harness stdio does, with POSTs where it is
// elsewhere.
func (a *app) hookDial(ctx context.Context, f hookFlags, session ahp.Option) (*ahp.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	key := strings.TrimSpace(os.Getenv("SIGNALBOX_KEY"))
	if f.keyFile != "" {
		text, err := os.ReadFile(f.keyFile)
		if err != nil {
			return nil, err
		}
		key = strings.TrimSpace(string(text))
	}
	if a.elsewhere(key) {
		base, err := a.address()
		if err != nil {
			return nil, err
		}
		return ahp.Dial(ctx, base+"/ahp", ahp.WithKey(key), session)
	}
	return ahp.Dial(ctx, "unix:"+filepath.Join(a.dataDir(), harness.SocketFile), session)
}

// readAll reads what a CLI says, unless that takes too long or is too much.
func readAll(ctx context.Context, in io.Reader) ([]byte, error) {
	type outcome struct {
		text []byte
		err  error
	}
	done := make(chan outcome, 1)
	go func() { // it may be left behind in a read that nobody can end
		text, err := io.ReadAll(io.LimitReader(in, maxPiped+1))
		if err == nil && len(text) > maxPiped {
			err = fmt.Errorf("it is longer than %d bytes", maxPiped)
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

func newHookInstall(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "install NAME", Short: "Register the hooks in a CLI's settings", ValidArgs: hook.Names(),
		Long: "Adds the hooks to the CLI's settings: those of the person, or with --project those of the\nproject in this folder. Everything else in them stays as it is, and `signalbox hook\nuninstall` puts them back.\n\n" +
			"The hooks talk to the server that this command would talk to. With --wait the CLI waits so\nlong for a person's decision; without it, it is told to try again after a few seconds.",
		Example: "  signalbox hook install claude-code\n  signalbox hook install codex --wait 10m\n  signalbox hook install gemini --project --server https://signalbox.example --key-file ~/.signalbox-key",
		Args:    exactly(1, "the name of a CLI: "+strings.Join(hook.Names(), ", ")),
	}
	var f hookFlags
	f.add(c)
	project := projectFlag(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		t, file, err := settingsOf(args[0], *project)
		if err != nil {
			return err
		}
		reach, err := a.reach(f)
		if err != nil {
			return err
		}
		program, err := os.Executable()
		if err != nil {
			return err
		}
		changed, err := t.Install(file, t.Command(program, reach...), hookTime+f.wait+hookMargin)
		if err != nil {
			return leftAlone(err, file)
		}
		a.sayInstalled(t, file, changed)
		return nil
	}
	return c
}

// reach is how a hook that runs in any folder finds the server that this command would
// talk to.
func (a *app) reach(f hookFlags) ([]string, error) {
	var reach []string
	if a.elsewhere("") {
		base, err := a.address()
		if err != nil {
			return nil, err
		}
		reach = []string{"--server", base}
	} else {
		dir, err := filepath.Abs(a.dataDir())
		if err != nil {
			return nil, err
		}
		if _, err := os.Stat(filepath.Join(dir, server.URLFile)); err != nil {
			_, _ = fmt.Fprintf(a.err, "No server has been started with its data in %s yet. Until then everything is refused.\n", dir)
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

func (a *app) sayInstalled(t *hook.Tool, file string, changed bool) {
	if !changed {
		_, _ = fmt.Fprintf(a.out, "%s is under supervision already, by %s.\n", t.Title, file)
		return
	}
	_, _ = fmt.Fprintf(a.out, "%s is under supervision from its next session on, by %s.\n", t.Title, file)
	switch t.Name {
	case "codex":
		_, _ = fmt.Fprintln(a.out, "Codex skips hooks that nobody has reviewed: start it, and trust them with /hooks.")
	case "amp":
		_, _ = fmt.Fprintln(a.out, "What the policy allows, Amp does without asking. `amp permissions list` shows the rule.")
	}
}

func newHookUninstall(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "uninstall NAME", Short: "Take the hooks out of a CLI's settings", ValidArgs: hook.Names(),
		Long: "Puts the CLI's settings back as they were before `signalbox hook install`, byte for byte\nif nothing else has changed in them, and else without the hooks.",
		Args: exactly(1, "the name of a CLI: "+strings.Join(hook.Names(), ", ")),
	}
	project := projectFlag(c)
	c.RunE = func(_ *cobra.Command, args []string) error {
		t, file, err := settingsOf(args[0], *project)
		if err != nil {
			return err
		}
		changed, err := t.Uninstall(file)
		if err != nil {
			return leftAlone(err, file)
		}
		if changed {
			_, _ = fmt.Fprintf(a.out, "%s is no longer under supervision: its hooks are gone from %s.\n", t.Title, file)
		} else {
			_, _ = fmt.Fprintf(a.out, "There are no hooks of Signalbox in %s.\n", file)
		}
		return nil
	}
	return c
}

func projectFlag(c *cobra.Command) *bool {
	return c.Flags().Bool("project", false, "the settings of the project in this folder, instead of the person's")
}

// settingsOf finds a tool and its settings.
func settingsOf(name string, project bool) (*hook.Tool, string, error) {
	t := hook.Named(name)
	if t == nil {
		return nil, "", usage("%q is not a CLI that is known here. %s", name, fault.DidYouMean(name, hook.Names()))
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
	return fault.Wrap(err, fault.InvalidConfig, "The settings in %s are left as they are: they cannot be read or written. Repair them, or say with --project that you mean those of this folder.", file)
}
