package cli

import (
	"fmt"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/deliver"
)

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
	w.Field("queued", d.QueuedAt.Local().Format(time.DateTime))
	if d.NextAt != nil {
		w.Field("next try", d.NextAt.Local().Format(time.DateTime))
	}
	// Deliveries to one target keep their order, so one may wait for another to finish.
	w.Field("behind", d.Behind)
	w.Field("error", d.LastError)
	for _, e := range d.Events {
		w.Line(fmt.Sprintf("  %s  %-10s %s", e.At.Local().Format(time.DateTime), e.Kind, e.Text))
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
