package cli

import (
	"fmt"
	"strings"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/deliver"
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

// deliveryPath is the path of a delivery in the API. The id comes from the command line,
// so it is escaped: a slash must not turn it into another path.
func deliveryPath(id string) string { return api.Path("/ops/deliveries/{}", id) }

// deliveryArgument says where to find an id, since nobody knows one by heart.
const deliveryArgument = "the id of a delivery, from `signalbox deliveries ls`"

// newDeliveriesLs prints one page, the newest first. Unlike the list of agents it is not read
// to its end: deliveries are kept, and there may be hundreds of thousands.
func newDeliveriesLs(a *command.App) *command.Command {
	c := a.Listing("List deliveries, the newest first")
	status := c.Flags().String("status", "", strings.Join(deliver.Statuses, ", ")+"; all when absent")
	target := c.Flags().String("target", "", "only deliveries to exactly this address")
	workspace := onlyWorkspaceFlag(c)
	limit := c.Flags().Int("limit", 50, "how many at most")
	c.RunE = func(c *command.Command, _ []string) error {
		q := api.Query{"status": *status, "target": *target, "workspace": *workspace, "limit": *limit}
		return command.Ask(c.Context(), a, api.Find("/ops/deliveries", q),
			func(w output.Printer, page deliver.Page) {
				rows := output.Rows(page.Deliveries, func(d deliver.Summary) []string {
					return []string{
						d.ID, d.Status, d.Sender, output.Since(d.QueuedAt), fmt.Sprint(d.Attempts), d.Target, d.LastError,
					}
				})
				w.Table("There are no deliveries.",
					[]string{"ID", "STATUS", "SENDER", "QUEUED", "TRIES", "TARGET", "LAST ERROR"}, rows)
			})
	}
	return c
}

// newDeliveriesShow prints every attempt with its error, which is what tells a wrong
// address from a receiver that was down.
func newDeliveriesShow(a *command.App) *command.Command {
	c := a.About("show DELIVERY_ID", "Show a delivery and every attempt", deliveryArgument)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Get(deliveryPath(args[0])), printDelivery)
	}
	return c
}

// printDelivery prints times in the local time zone, as all commands do; --json has UTC.
func printDelivery(w output.Printer, d deliver.Detail) {
	w.Field("delivery", d.ID)
	w.Field("status", d.Status)
	w.Field("sender", d.Sender)
	w.Field("target", d.Target)
	w.Field("queued", output.Moment(d.QueuedAt))
	if d.NextAt != nil {
		w.Field("next try", output.Moment(*d.NextAt))
	}
	// Deliveries to one target keep their order, so one may wait for another to finish.
	w.Field("behind", d.Behind)
	w.Field("error", d.LastError)
	for _, e := range d.Events {
		w.Line(fmt.Sprintf("  %s  %-10s %s", output.Moment(e.At), e.Kind, e.Text))
	}
}

// newDeliveriesResend makes the next attempt due now, also for a delivery that was given
// up. The id stays the same, so a receiver that has got it already can drop it.
func newDeliveriesResend(a *command.App) *command.Command {
	c := a.About("resend DELIVERY_ID", "Send a delivery now, whether it was given up or waits for its next attempt",
		deliveryArgument)
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Post(deliveryPath(args[0])+"/resend", nil),
			func(w output.Printer, d deliver.Summary) { w.Print("%s will be sent again now.", d.ID) })
	}
	return c
}
