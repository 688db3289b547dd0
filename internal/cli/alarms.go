package cli

import (
	"signalbox/internal/alarm"
	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
)

// newAlarmsLs prints what nobody should have done, with what to do about it.
func newAlarmsLs(a *command.App) *command.Command {
	c := a.Listing("List the alarms that are open, the newest first")
	all := c.Flags().Bool("all", false, "those that were closed too")
	c.RunE = func(c *command.Command, _ []string) error {
		path := "/ops/alarms"
		if *all {
			path += "?all=true"
		}
		return command.Ask(c.Context(), a, api.Get(path), func(w output.Printer, list alarm.List) {
			if len(list.Alarms) == 0 {
				w.Print("There are no alarms.")
			}
			for _, one := range list.Alarms {
				w.Print("%s  %s  %s", one.ID, output.Since(one.RaisedAt), one.Title)
				w.Field("what", one.Detail)
				w.Field("agent", one.Agent)
				w.Field("closed by", one.ClosedBy)
				w.Field("note", one.Note)
			}
		})
	}
	return c
}

// newAlarmsClose closes one that somebody has looked at.
func newAlarmsClose(a *command.App) *command.Command {
	c := a.About("close ALARM_ID", "Close an alarm that you have looked at",
		"the id of an alarm, from `signalbox alarms ls`")
	note := c.Flags().String("note", "", "what you found")
	c.RunE = func(c *command.Command, args []string) error {
		return command.Ask(
			c.Context(),
			a,
			api.Post(api.Path("/ops/alarms/{}/close", args[0]), alarm.Closing{Note: *note}),
			func(w output.Printer, one alarm.Alarm) { w.Print("%s is closed.", one.ID) },
		)
	}
	return c
}
