package screen

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/counter"
	"signalbox/internal/gate"
	"signalbox/internal/ledger"
	"signalbox/internal/roster"
	"signalbox/internal/run"
	"signalbox/internal/server"
	"signalbox/internal/show"
)

// NewTop is the command `top`. It follows entries of every kind, since each of them may
// change one of its numbers.
func NewTop(a *command.App) *command.Command {
	return &command.Command{
		Use:   "top",
		Short: "The overview on the whole terminal: gates, cost, agents and the ledger", Args: command.NoArguments(),
		RunE: func(c *command.Command, _ []string) error {
			cl, err := a.Client()
			if err != nil {
				return err
			}
			return present(c.Context(), a, cl, &top{ctx: c.Context(), api: cl}, "signalbox counters", "")
		},
	}
}

// top is the overview. seen is the last complete answer; it stays on the screen while
// the server is away. reading and due make sure that only one refresh runs at a time.
type top struct {
	ctx          context.Context //nolint:containedctx // a screen lives as long as its command
	api          *api.Client
	width        int // when it was last drawn
	seen         *overview
	away         string
	reading, due bool
}

// overview is everything that one refresh reads. It is used only if all parts arrived.
type overview struct {
	counters counter.Report
	status   server.Status
	gates    gate.GatePage
	agents   roster.AgentPage
	runs     run.Page
	entries  ledger.EntryPage
	err      error
}

// ask starts a refresh, or if one is running, notes that another is due afterwards.
// During a burst of entries the server thus gets one refresh after another, and never
// several at once.
func (t *top) ask() call {
	if t.reading {
		t.due = true
		return nil
	}
	t.reading, t.due = true, false
	return t.read
}

// read asks for all parts. It runs beside the screen and touches no field but api and
// ctx.
func (t *top) read() any {
	o := &overview{}
	for path, answer := range map[string]any{
		"/ops/counters": &o.counters, "/ops/status": &o.status,
		"/ops/gates?status=pending&limit=8": &o.gates, "/ops/agents?limit=1000": &o.agents,
		"/runs?status=running&limit=20": &o.runs, "/ops/ledger?newest=1&limit=60": &o.entries,
	} {
		if err := t.api.Call(t.ctx, api.Get(path), answer); err != nil {
			o.err = err
		}
	}
	return o
}

// take handles an event; see viewer.
func (t *top) take(event any) call {
	switch e := event.(type) {
	case changed:
		return t.ask()
	case lost:
		t.away = e.why
	case *overview:
		t.reading = false
		if t.away = ""; e.err != nil {
			t.away = e.err.Error()
		} else {
			t.seen = e
		}
		if t.due {
			return t.ask()
		}
	case key:
		if slices.Contains([]string{"q", "esc", "ctrl+c"}, e.name) {
			return quit
		}
	}
	return nil
}

// draw shows the counters, the pending gates and the ledger, and beside them the agents
// if the terminal is wide enough.
func (t *top) draw(width, height int) []string {
	t.width = width
	if width < 40 || height < 12 {
		return []string{"Make the terminal larger."}
	}
	// Stale numbers are marked, not hidden: the last state is still useful, if one knows
	// that it is old.
	state := good.of("● live ")
	if t.away != "" {
		state = danger.of("○ away ")
	}
	lines := []string{spread(bold.of(" Signalbox   "+t.api.Base), state, t.width)}
	if t.seen == nil {
		lines = append(lines, "", " "+show.Text(t.away))
		return lines
	}
	lines = append(lines, t.numbers(height)...)
	left := t.width
	if t.width >= sideBySideFrom {
		left = t.width * 3 / 5
	}
	main := slices.Concat(t.waits(left), t.costs(left), t.models(left), t.news(left))
	room := height - len(lines) - 1
	if left == t.width {
		lines = append(lines, fill(main, t.width, room)...)
	} else {
		main, side := fill(main, left, room), fill(t.people(), t.width-left-3, room)
		for i := range room {
			lines = append(lines, main[i]+faint.of(" │ ")+side[i])
		}
	}
	foot := faint.of(" q leave   `signalbox gates watch` decides")
	if t.away != "" {
		foot = danger.of(" " + show.Text(t.away))
	}
	return append(lines, foot)
}

// numbers are the counters of today, in UTC, and what there is now: counted by the server, since a list is a page.
func (t *top) numbers(height int) []string {
	now, today := t.seen.status.Now, t.seen.counters.Today()
	waits := output.Thousands(t.seen.counters.Total.Gates.Waiting)
	if at := t.seen.counters.OldestWaiting; at != nil {
		waits += faint.of(" oldest " + output.Since(*at))
	}
	// Name and value are two rows of one cell; the zero byte separates them until they
	// are laid out.
	cell := func(name, value string) string {
		return fit(" "+faint.of(name), t.width/4) + "\x00" + fit(" "+bold.of(value), t.width/4)
	}
	cells := []string{
		cell("gates waiting", waits), cell("cost today", fmt.Sprintf("$%.2f", today.CostUSD)),
		cell("tokens today", output.Thousands(today.InputTokens+today.OutputTokens)),
		cell("agents online", output.Thousands(now.AgentsOnline)+" of "+output.Thousands(now.Agents)),
		cell("approved today", output.Thousands(today.Gates.Approved)),
		cell("rejected today", output.Thousands(today.Gates.Rejected)),
		cell("runs today", fmt.Sprintf("%s done, %s not", output.Thousands(today.Runs.Completed),
			output.Thousands(today.Runs.Failed+today.Runs.Interrupted+today.Runs.Cancelled+today.Runs.Stopped))), cell("agent CLIs running", output.Thousands(now.RunsRunning)),
		cell("model calls today", output.Thousands(today.Calls)), cell("blocked today", output.Thousands(today.Blocks)),
		cell("expired today", output.Thousands(today.Gates.Expired)), cell("alarms", output.Thousands(now.AlarmsOpen)),
	}
	if height < 30 { // so that there is room for what waits
		cells = cells[:8]
	}
	var lines []string
	for row := range slices.Chunk(cells, 4) {
		var names, values strings.Builder
		for _, one := range row {
			name, value, _ := strings.Cut(one, "\x00")
			names.WriteString(name)
			values.WriteString(value)
		}
		lines = append(lines, "", names.String(), values.String())
	}
	return append(lines, "")
}

// waits lists the first eight pending gates, in the order of the inbox: the highest risk
// first.
func (t *top) waits(width int) []string {
	lines := []string{bold.of(" Waiting")}
	for _, g := range t.seen.gates.Gates {
		lines = append(lines,
			spread(fmt.Sprintf(" %s %s  %s", riskMark(g.Risk), show.Text(g.Agent), show.Text(g.Title)),
				faint.of(output.Since(g.OpenedAt)), width))
	}
	if more := t.seen.counters.Total.Gates.Waiting - int64(len(t.seen.gates.Gates)); more > 0 {
		lines = append(lines, faint.of(" and "+output.Thousands(more)+" more"))
	}
	if len(t.seen.gates.Gates) == 0 {
		lines = append(lines, faint.of(" Nothing waits for a decision."))
	}
	return append(lines, "")
}

// costs shows the cost of the last 14 days as bars. The bars are relative to the most
// expensive day.
func (t *top) costs(width int) []string {
	days := t.seen.counters.Days
	days = days[max(0, len(days)-14):]
	most, total := 0.0, 0.0
	for _, d := range days {
		most, total = max(most, d.Counts.CostUSD), total+d.Counts.CostUSD
	}
	var bars strings.Builder
	for _, d := range days {
		level := 0
		if most > 0 {
			level = int(d.Counts.CostUSD / most * 7)
		}
		bars.WriteString(strings.Repeat(string([]rune("▁▂▃▄▅▆▇█")[level]), max(1, min(4, width/20))) + " ")
	}
	return []string{spread(bold.of(" Cost by day"),
		faint.of(fmt.Sprintf("$%.2f in %s", total, output.Count(len(days), "day"))), width), " " + blue.of(bars.String()), ""}
}

// models shows what models cost in the days of the report, the dearest first.
func (t *top) models(width int) []string {
	lines := []string{bold.of(" Cost by model")}
	for _, m := range t.seen.counters.Models {
		if m.Counts.CostUSD > 0 && len(lines) <= 4 {
			lines = append(lines, spread(" "+show.Text(cmp.Or(m.Name, "no model named")),
				fmt.Sprintf("$%.2f", m.Counts.CostUSD), width))
		}
	}
	if len(lines) == 1 {
		return nil
	}
	return append(lines, "")
}

// people lists agents, those online first and then by name, so that rows do not jump,
// and below them the runs in progress.
func (t *top) people() []string {
	// The answer itself stays in the order of the server; draw is called many times for
	// one answer.
	all := slices.Clone(t.seen.agents.Agents)
	slices.SortStableFunc(all, func(a, b roster.Agent) int {
		switch {
		case a.Online == b.Online:
			return strings.Compare(a.Name, b.Name)
		case a.Online:
			return -1
		}
		return 1
	})
	lines := []string{bold.of("Agents")}
	for _, g := range all {
		dot := faint.of("○")
		if g.Online {
			dot = good.of("●")
		}
		state := output.Seen(g.Online, g.LastSeenAt)
		if g.Suspended {
			state = "suspended"
		}
		lines = append(lines, dot+" "+show.Text(g.Name)+faint.of("  "+state))
	}
	for i, r := range t.seen.runs.Runs {
		if i == 0 {
			lines = append(lines, "", bold.of("Runs in progress"))
		}
		lines = append(lines, fmt.Sprintf("%s  $%.2f  %s", r.Engine, r.CostUSD, show.Text(output.OneLine(r.Prompt))))
	}
	return lines
}

// news are the last entries of the ledger, the newest first.
func (t *top) news(width int) []string {
	lines := []string{bold.of(" Ledger")}
	for _, e := range slices.Backward(t.seen.entries.Entries) {
		lines = append(lines, fit(fmt.Sprintf(" %s %-20s %s %s", faint.of(e.At.Local().Format(time.TimeOnly)),
			show.Text(e.Kind), show.Text(e.Actor), faint.of(show.Text(e.Subject))), width))
	}
	return lines
}
