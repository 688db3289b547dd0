package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"signalbox/internal/fault"
	"signalbox/internal/notify"
)

func newNotify(a *app) *cobra.Command {
	return group("notify", "The channels that are told of gates: list, test, secret",
		newNotifyLs(a), newNotifyTest(a), newNotifySecret(a))
}

func newNotifyLs(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "ls", Short: "List the channels", Args: exactly(0, "no arguments")})
	c.RunE = func(c *cobra.Command, _ []string) error {
		var all notify.ChannelList
		if err := a.call(c.Context(), "GET", "/ops/notify", nil, &all); err != nil {
			return err
		}
		return a.show(all, func(w io.Writer) {
			var rows [][]string
			for _, one := range all.Channels {
				buttons := "no"
				if one.Buttons {
					buttons = "yes"
				}
				rows = append(rows, []string{one.Channel, one.Target, buttons})
			}
			table(w, "No channel is configured. `signalbox config show` shows the settings that begin with notify.", []string{"CHANNEL", "TARGET", "BUTTONS"}, rows)
		})
	}
	return c
}

func newNotifyTest(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "test CHANNEL", Short: "Send a test message and say what happened",
		Example: "  signalbox notify test slack", Args: exactly(1, "a channel, from `signalbox notify ls`"),
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		var got notify.TestAnswer
		if err := a.call(c.Context(), "POST", "/ops/notify/test", notify.TestRequest{Channel: args[0]}, &got); err != nil {
			return err
		}
		failed := 0
		for _, r := range got.Results {
			if !r.Delivered {
				failed++
			}
		}
		err := a.show(got, func(w io.Writer) {
			for _, r := range got.Results {
				say := "delivered"
				if !r.Delivered {
					say = "not delivered (" + r.Class + "): " + r.Text
				}
				_, _ = fmt.Fprintf(w, "%s: %s\n", r.Target, say)
			}
		})
		if err == nil && failed > 0 {
			err = fault.New(fault.Conflict, "The test message did not arrive everywhere.")
		}
		return err
	}
	return c
}

func newNotifySecret(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{Use: "secret", Short: "Print the secret with which calls to notify.webhook are signed", Args: exactly(0, "no arguments")})
	c.RunE = func(c *cobra.Command, _ []string) error {
		var got notify.SecretAnswer
		if err := a.call(c.Context(), "GET", "/ops/notify/secret", nil, &got); err != nil {
			return err
		}
		return a.show(got, func(w io.Writer) { _, _ = fmt.Fprintln(w, got.Secret) })
	}
	return c
}
