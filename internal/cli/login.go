package cli

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/keep"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/web"
)

// newLogin prints an address and opens no browser: the command often runs on a server
// over SSH. The address holds a one-time code in place of the token, so that the token
// never gets into the history of a browser.
func newLogin(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "login", Short: "Print an address that signs you in to the dashboard, or sign this terminal in",
		Long: `Print an address that signs the operator of your token in to the dashboard. It can be
used once, within five minutes.

With --cli it is the other way round: you confirm in a browser where you are signed in, and the
commands of this terminal's user have your power for a day. The token is in the kernel's keyring, or
in a file that only this user can read.`,
		Example: "  signalbox login\n  signalbox login --cli --server https://signalbox.example.com",
		Args:    command.NoArguments(),
	})
	terminal := c.Flags().Bool("cli", false, "sign this terminal in, through the browser")
	forget := c.Flags().Bool("forget", false, "with --cli: forget the token of this terminal, and end it")
	c.RunE = func(c *command.Command, _ []string) error {
		switch {
		case *forget && !*terminal:
			return command.Usage("--forget takes --cli too.")
		case *forget:
			return forgetTerminal(c.Context(), a)
		case *terminal:
			return loginTerminal(c.Context(), a)
		}
		return command.Ask(c.Context(), a, api.Post("/ops/login", nil), func(w output.Printer, made web.Login) {
			w.Print("%s", made.URL)
		})
	}
	return c
}

// lookEvery is how often a terminal asks whether the person has confirmed.
const lookEvery = 2 * time.Second

// loginTerminal asks the person for their power and keeps the token that comes of it.
func loginTerminal(ctx context.Context, a *command.App) error {
	keeper, base, err := kept(a)
	if err != nil {
		return err
	}
	cl := &api.Client{Base: base}
	var asked web.TerminalAsked
	if err := cl.Call(ctx, api.Post("/login/cli", whoAsks()), &asked); err != nil {
		return err
	}
	a.Err.Print("Open this address where you are signed in to the dashboard, and confirm if it shows the code %s:\n", asked.Code)
	a.Err.Print("%s\n", asked.URL)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		var answer web.TerminalAnswer
		err := cl.Call(ctx, api.Post("/login/cli/token", web.TerminalLook{Question: asked.Question, Secret: asked.Secret}),
			&answer)
		if err != nil {
			return err
		}
		if answer.Token != "" {
			where, err := keeper.Put(keep.Token{
				Server: base, Operator: answer.Operator, Token: answer.Token,
				ExpiresAt: answer.ExpiresAt,
			})
			if err != nil {
				return err
			}
			return a.Show(map[string]any{"operator": answer.Operator, "expires_at": answer.ExpiresAt, "kept_in": where},
				func(w output.Printer) {
					w.Print("Signed in to %s as %s until %s; the token is in %s.", base, answer.Operator,
						answer.ExpiresAt.Local().Format("2006-01-02 15:04"), where)
				})
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// kept is where this user's tokens are, and the server that the command is about.
func kept(a *command.App) (keeper *keep.Keeper, base string, err error) {
	if keeper, err = keep.New(); err == nil {
		base, err = a.Address()
	}
	return keeper, base, err
}

// whoAsks is what the page tells the person about this terminal.
func whoAsks() web.TerminalAsk {
	machine, _ := os.Hostname()
	ask := web.TerminalAsk{Machine: machine, Process: fmt.Sprintf("process %d", os.Getppid())}
	if u, err := user.Current(); err == nil {
		ask.User = u.Username
	}
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid())); err == nil {
		ask.Process = fmt.Sprintf("%s (%d)", strings.TrimSpace(string(name)), os.Getppid())
	}
	return ask
}

// forgetTerminal ends the token at the server and removes it here. It is removed here also if the server
// cannot be told: then it ends by itself within a day.
func forgetTerminal(ctx context.Context, a *command.App) error {
	keeper, base, err := kept(a)
	if err != nil {
		return err
	}
	token, found := keeper.Get(base, time.Now())
	keeper.Remove(base)
	if !found {
		a.Out.Print("This terminal is not signed in to %s.", base)
		return nil
	}
	cl := &api.Client{Base: base, Token: token.Token}
	if err := cl.Call(ctx, api.Delete("/ops/login/cli"), nil); err != nil {
		return fault.Wrap(err, fault.Conflict,
			"The token is forgotten here. The server could not be told, so it ends there by itself at %s.",
			token.ExpiresAt.Local().Format("2006-01-02 15:04"))
	}
	a.Out.Print("Signed out of %s.", base)
	return nil
}
