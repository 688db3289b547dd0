package cli

import (
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/notify"
)

func newNotify(a *command.App) *command.Command {
	return command.Group("notify", "The channels that are told of gates: list, test, secret",
		newNotifyLs(a), newNotifyTest(a), newNotifySecret(a))
}

func newNotifyLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{Use: "ls", Short: "List the channels", Args: command.NoArguments()})
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get("/ops/notify"), printChannels)
	}
	return c
}

func printChannels(w output.Printer, all notify.ChannelList) {
	var rows [][]string
	for _, one := range all.Channels {
		rows = append(rows, []string{one.Channel, one.Target, map[bool]string{true: "yes", false: "no"}[one.Buttons]})
	}
	none := "No channel is configured. `signalbox config show` shows the settings that begin with notify."
	w.Table(none, []string{"CHANNEL", "TARGET", "BUTTONS"}, rows)
}

func newNotifyTest(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "test CHANNEL", Short: "Send a test message and say what happened",
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
