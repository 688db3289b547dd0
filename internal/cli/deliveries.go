package cli

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/deliver"
)

func newDeliveries(a *command.App) *command.Command {
	return command.Group("deliveries", "Outgoing calls, such as webhooks and notifications: list, show, resend",
		newDeliveriesLs(a), newDeliveriesShow(a), newDeliveriesResend(a))
}

// deliveryPath is the address of a delivery in the API.
func deliveryPath(id string) string { return "/ops/deliveries/" + url.PathEscape(id) }

const deliveryArgument = "the id of a delivery, from `signalbox deliveries ls`"

func newDeliveriesLs(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "ls", Short: "List deliveries, the newest first", Args: command.NoArguments(),
	})
	status := c.Flags().String("status", "", strings.Join(deliver.Statuses, ", ")+"; all when absent")
	target := c.Flags().String("target", "", "only deliveries to exactly this address")
	workspace := onlyWorkspaceFlag(c)
	limit := c.Flags().Int("limit", 50, "how many at the most")
	c.RunE = func(c *command.Command, _ []string) error {
		q := url.Values{
			"status": {*status}, "target": {*target}, "workspace": {*workspace}, "limit": {fmt.Sprint(*limit)},
		}
		return command.Ask(c.Context(), a, api.Get("/ops/deliveries?"+q.Encode()),
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

func newDeliveriesShow(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "show DELIVERY_ID", Short: "Show a delivery and every try", Args: command.Exactly(1, deliveryArgument),
	})
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Get(deliveryPath(args[0])), printDelivery)
	}
	return c
}

func printDelivery(w output.Printer, d deliver.Detail) {
	w.Field("delivery", d.ID)
	w.Field("status", d.Status)
	w.Field("sender", d.Sender)
	w.Field("target", d.Target)
	w.Field("queued", d.QueuedAt.Local().Format(time.DateTime))
	if d.NextAt != nil {
		w.Field("next try", d.NextAt.Local().Format(time.DateTime))
	}
	w.Field("behind", d.Behind)
	w.Field("error", d.LastError)
	for _, e := range d.Events {
		w.Line(fmt.Sprintf("  %s  %-10s %s", e.At.Local().Format(time.DateTime), e.Kind, output.Printable(e.Text)))
	}
}

func newDeliveriesResend(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use:   "resend DELIVERY_ID",
		Short: "Send a delivery now: one that was given up, or one that waits for its next try",
		Args:  command.Exactly(1, deliveryArgument),
	})
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(c.Context(), a, api.Post(deliveryPath(args[0])+"/resend", nil),
			func(w output.Printer, d deliver.Summary) { w.Print("%s is sent again.", d.ID) })
	}
	return c
}
