package cli

import (
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/notify"
)

// newNotifyLs lists the channels that the running server has, not those in the file.
func newNotifyLs(a *command.App) *command.Command {
	c := a.Listing("List the channels")
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/notify"), printChannels)
	}
	return c
}

// printChannels prints one row per channel. BUTTONS says whether people can decide in
// the channel itself or have to follow a link to the dashboard.
func printChannels(w output.Printer, all notify.ChannelList) {
	var rows [][]string
	for _, one := range all.Channels {
		rows = append(rows, []string{one.Channel, one.Target, map[bool]string{true: "yes", false: "no"}[one.Buttons]})
	}
	none := "No channel is configured. `signalbox config show` shows the settings that begin with notify."
	w.Table(none, []string{"CHANNEL", "TARGET", "BUTTONS"}, rows)
}

// newNotifyTest has the server send a message through its own connections and settings,
// which is the only test that proves something. One channel may have several targets,
// each with its own result. Any that failed makes the exit code 1.
func newNotifyTest(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "test CHANNEL", Short: "Send a test message and report the result",
		Example: "  signalbox notify test slack", Args: command.Exactly(1, "a channel, from `signalbox notify ls`"),
	})
	c.RunE = func(c *command.Command, args []string) error {
		failed := 0
		var got notify.TestAnswer
		if err := a.Call(c.Context(), api.Post("/ops/notify/test", notify.TestRequest{Channel: args[0]}), &got); err != nil {
			return err
		}
		for _, r := range got.Results {
			if !r.Delivered {
				failed++
			}
		}
		// Results first: a channel may have reached two of three targets.
		err := a.Show(got, func(w output.Printer) {
			for _, r := range got.Results {
				say := "delivered"
				if !r.Delivered {
					say = "not delivered (" + r.Class + "): " + r.Text
				}
				w.Print("%s: %s", r.Target, say)
			}
		})
		if err == nil && failed > 0 {
			err = fault.New(fault.Conflict, "The test message did not arrive everywhere.")
		}
		return err
	}
	return c
}

// newNotifySecret prints the secret that receivers of notify.webhook need to check
// signatures. The server shows it to admins only.
func newNotifySecret(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "secret", Short: "Print the secret with which calls to notify.webhook are signed", Args: command.NoArguments(),
	})
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/notify/secret"), func(w output.Printer, got notify.SecretAnswer) {
			w.Print("%s", got.Secret)
		})
	}
	return c
}
