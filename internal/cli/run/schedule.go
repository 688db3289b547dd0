package run

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
	"signalbox/internal/run"
	"signalbox/internal/run/engine"
	"signalbox/internal/run/process"
	"signalbox/internal/run/schedule"
)

// schedulesPath is the path of schedules in the API.
const schedulesPath = "/runs/schedules"

// newSchedule is the command `runs schedule` and what is below it.
func newSchedule(a *command.App) *command.Command {
	c := a.WithJSON(&command.Command{
		Use: "schedule ENGINE --cron TEXT [flags] -- PROMPT", Short: "Have the server start a run again and again",
		Long: "Sets a schedule: the server starts the run at each of its times, in a folder of runs.folders,\n" +
			"as the operator who has set it. It survives restarts, and of several servers one starts it.",
		Example: `  signalbox runs schedule claude --cron "30 9 * * mon-fri" --timezone Europe/Berlin --cwd /srv/repo --budget-usd 2 -- ` +
			"update the dependencies",
		Args: command.AnyArguments(),
	})
	var n schedule.Request
	var catchUp, mode string
	c.Flags().StringVar(&n.Cron, "cron", "", `when: five fields such as "30 9 * * mon-fri", or @hourly, @daily, @weekly, @monthly`)
	c.Flags().StringVar(&n.Zone, "timezone", "UTC", "the time zone of --cron, such as Europe/Berlin")
	c.Flags().StringVar(&catchUp, "catch-up", string(schedule.Skip),
		"what becomes of times that were missed: skip, once (one run for all of them) or all")
	c.Flags().StringVar(&n.Run.Dir, "cwd", "", "the folder to work in, inside of runs.folders")
	c.Flags().StringVar(&n.Run.Model, "model", "", "the model; for amp its mode")
	c.Flags().StringVar(&n.Run.User, "user", "", "the user on whose behalf it runs: a name, an id or an e-mail")
	c.Flags().StringVar(&mode, "mode", "", "what the agent may do: read, edit, full or supervised; runs.ENGINE.permissions when empty")
	c.Flags().BoolVar(&n.Run.Supervised, "supervised", false, "the same as --mode supervised")
	c.Flags().Float64Var(&n.Run.Budget.USD, "budget-usd", 0, "stop each run after this many dollars")
	c.Flags().Int64Var(&n.Run.Budget.Tokens, "budget-tokens", 0, "stop each run after this many tokens")
	most := c.Flags().Duration("max-time", 0, "stop each run after this time, such as 30m")
	c.AddCommand(newScheduleLs(a), newScheduleRm(a))
	c.RunE = func(c *command.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		if _, err := engine.Find(args[0]); err != nil {
			return command.Usage("%s", fault.From(err).Message)
		}
		if mode != "" {
			var err error
			if n.Run.Mode, err = engine.ParseMode(mode); err != nil {
				return command.Usage("--%s", fault.From(err).Message)
			}
		}
		n.CatchUp, n.Run.Engine, n.Run.Prompt = schedule.CatchUp(catchUp), args[0], strings.Join(args[1:], " ")
		n.Run.User = cmp.Or(n.Run.User, os.Getenv(process.UserVariable))
		n.Run.Limits.Total = most.Seconds()
		return command.Ask(c.Context(), a, api.Post(schedulesPath, n), func(w output.Printer, s schedule.Schedule) {
			w.Print("%s starts %s, first at %s.", s.ID, s.Run.Engine, moment(s.NextAt))
		})
	}
	return c
}

// moment is a time of a schedule, as people here read it.
func moment(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.Local().Format("2006-01-02 15:04 MST")
}

// newScheduleLs lists schedules.
func newScheduleLs(a *command.App) *command.Command {
	c := a.Listing("List schedules")
	c.RunE = func(c *command.Command, _ []string) error {
		return command.Ask(c.Context(), a, api.Get(schedulesPath), func(w output.Printer, page schedule.List) {
			for _, s := range page.Schedules {
				printSchedule(w, s)
			}
			if len(page.Schedules) == 0 {
				w.Print("There are no schedules.")
			}
		})
	}
	return c
}

// printSchedule prints a schedule, with what became of its last time.
func printSchedule(w output.Printer, s schedule.Schedule) {
	w.Print("%s", s.ID)
	w.Field("when", s.Cron+" "+s.Zone+", missed times: "+string(s.CatchUp))
	w.Field("run", strings.TrimSpace(s.Run.Engine+" "+s.Run.Model)+" in "+s.Run.Dir)
	w.Field("mode", string(s.Run.Mode))
	w.Field("limit", limitLine(s.Run))
	w.Field("prompt", output.Cut(s.Run.Prompt, maxTitle))
	w.Field("set by", s.SetBy)
	w.Field("next", moment(s.NextAt))
	if s.LastAt != nil {
		w.Field("last", moment(s.LastAt)+": "+cmp.Or(s.LastRun, "not started, since "+s.LastReason))
	}
	w.Print("")
}

// limitLine is what each run of a schedule may use.
func limitLine(r run.Request) string {
	var parts []string
	if r.Budget.USD > 0 {
		parts = append(parts, fmt.Sprintf("$%.2f", r.Budget.USD))
	}
	if r.Budget.Tokens > 0 {
		parts = append(parts, output.Thousands(r.Budget.Tokens)+" tokens")
	}
	if r.Limits.Total > 0 {
		parts = append(parts, run.Lasting(r.Limits.Total))
	}
	if len(parts) == 0 {
		return "that of the configuration"
	}
	return strings.Join(parts, ", ")
}

// newScheduleRm removes a schedule.
func newScheduleRm(a *command.App) *command.Command {
	c := a.About("rm SCHEDULE_ID", "Remove a schedule; what it has started goes on", "the id of a schedule, from `signalbox runs schedule ls`")
	c.RunE = func(c *command.Command, args []string) error {
		if err := a.Call(c.Context(), api.Delete(api.Path(schedulesPath+"/{}", args[0])), nil); err != nil {
			return err
		}
		a.Out.Print("The schedule is removed.")
		return nil
	}
	return c
}
