// Package bench is the load that `signalbox bench` puts on a server, one file per kind of load, and how
// it is measured (load.go): a call that was due counts from when it was due, so that a server which
// stands still is seen to. It calls servers as any client does and knows nothing of what they are made of.
package bench

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
)

// New is the group of commands `bench`.
func New(a *command.App) *command.Command {
	return command.Group("bench", "Load on a running server, with latencies and throughput",
		newSignal(a), newHarness(a), newMail(a), newProxy(a))
}

// bench is one command: its load, and where it is shown.
type bench struct {
	*command.App
	flags
	command *command.Command
	what    string // is sent: signal, message
}

// flags are what a load is made of.
type flags struct {
	agent       command.AgentFlags
	connections int
	duration    time.Duration
	rate        float64
	gate        bool
	compare     bool
}

// Report is what a load came to.
type Report struct {
	Server Load    `json:"server"`
	Half   *Load   `json:"half_rate,omitempty"` // calls that are due half as often
	Bare   *Load   `json:"bare,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"` // of the calls a second
	// Gates that were opened, and at the end rejected or left to wait.
	Rejected int64 `json:"gates_rejected"`
	Left     int64 `json:"gates_left"`
}

// newBench gives a command the flags of a load of so many connections.
func newBench(a *command.App, what string, connections int, c *command.Command) *bench {
	b := &bench{App: a, what: what, command: a.WithJSON(c)}
	c.Flags().IntVar(&b.connections, "connections", connections, "how many connections send at once")
	c.Flags().DurationVar(&b.duration, "duration", 10*time.Second, "for how long")
	c.Flags().Float64Var(&b.rate, "rate", 0,
		"how many "+what+"s are due in a second; 0 is the next as soon as one was answered")
	return b
}

// agentFlags lets the load be that of an agent which is there.
func (b *bench) agentFlags() {
	b.agent.Add(b.command, "a key of the agent that sends them; without one an agent is made, and removed afterwards")
}

// compareFlag lets the load be put on something else first.
func (b *bench) compareFlag(with string) {
	b.command.Flags().BoolVar(&b.compare, "compare", false, "measure "+with+" in the same way first, and print the ratio")
}

// runs is the command, with the load that it makes.
func (b *bench) runs(load func(context.Context) (Report, error)) *command.Command {
	b.command.RunE = func(c *command.Command, _ []string) error { return b.run(c.Context(), load) }
	return b.command
}

// run makes a load and prints what it came to.
func (b *bench) run(ctx context.Context, load func(context.Context) (Report, error)) error {
	if b.connections < 1 || b.connections > 10_000 || b.duration <= 0 || b.rate < 0 {
		return command.Usage("--connections takes 1 to 10000, --duration a time such as 10s, and --rate 0 or more.")
	}
	report, err := load(ctx)
	if err == nil {
		err = b.Show(report, func(w output.Printer) { printReport(w, report) })
	}
	if err != nil {
		return err
	}
	for _, l := range []*Load{&report.Server, report.Half} {
		if l != nil && l.Errors > 0 {
			return fault.New(fault.VerificationFailed,
				"%s of %s were not answered as they should be.", output.Thousands(l.Errors), output.Count(int(l.Requests), b.what))
		}
	}
	return nil
}

// load is that of the flags, on an address.
func (b *bench) load(address string) load {
	return load{url: address, connections: b.connections, duration: b.duration, rate: b.rate}
}

// compare works out the ratio, if there is something to compare with.
func (r *Report) compare() {
	if r.Bare != nil && r.Bare.PerSecond > 0 {
		r.Ratio = r.Server.PerSecond / r.Bare.PerSecond
	}
}

// measureBare measures a handler on a listener of its own.
func (b *bench) measureBare(ctx context.Context, l load, path string, handler http.HandlerFunc) (Load, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Load{}, err
	}
	bare := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}
	served := make(chan error, 1)
	go func() { served <- bare.Serve(listener) }()
	defer func() {
		_ = bare.Close()
		<-served
	}()
	l.url = "http://" + listener.Addr().String() + path
	return b.measure(ctx, bareName, l)
}

const bareName = "bare handler"

// measure runs a load and shows how far it has come.
func (b *bench) measure(ctx context.Context, what string, l load) (Load, error) {
	shown := output.NewProgress(b.Err)
	defer shown.End()
	return l.run(ctx, func(done int64) {
		shown.Say(func(since time.Duration) string {
			return fmt.Sprintf("%s: %s of %s, %s requests", what, since.Round(time.Second), l.duration, output.Thousands(done))
		})
	})
}

func printReport(w output.Printer, r Report) {
	row := func(name string, l Load) []string {
		cells := []string{
			name, output.Thousands(l.Requests), output.Thousands(int64(l.PerSecond)),
			output.Thousands(l.Errors),
		}
		for _, ms := range []float64{l.Latency.P50, l.Latency.P90, l.Latency.P99, l.Latency.P999, l.Latency.Max} {
			cells = append(cells, fmt.Sprintf("%.2f ms", ms))
		}
		return cells
	}
	rows := [][]string{row("server", r.Server)}
	if r.Half != nil {
		rows = append(rows, row("at half the rate", *r.Half))
	}
	if r.Bare != nil {
		rows = append(rows, row(bareName, *r.Bare))
	}
	w.Table("", []string{"", "REQUESTS", "A SECOND", "ERRORS", "P50", "P90", "P99", "P99.9", "MAX"}, rows)
	for _, status := range slices.Sorted(maps.Keys(r.Server.Statuses)) {
		w.Print("%s × %s", status, output.Thousands(r.Server.Statuses[status]))
	}
	if r.Server.Unsent > 0 {
		w.Print("due and never sent, since no connection was free: %s; they count as still waiting",
			output.Thousands(r.Server.Unsent))
	}
	printLeft(w, r)
	if r.Ratio > 0 {
		w.Print("%.2f of the bare handler", r.Ratio)
	}
}

// printLeft says what became of the gates.
func printLeft(w output.Printer, r Report) {
	if r.Rejected > 0 {
		w.Print("rejected afterwards: %s", output.Count(int(r.Rejected), "gate"))
	}
	if r.Left > 0 {
		w.Print("left to wait in the deck bench: %s; `signalbox gates ls --project bench` shows "+
			"them, `signalbox gates reject` ends one", output.Count(int(r.Left), "gate"))
	}
}
