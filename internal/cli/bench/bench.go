// Package bench is the load that `signalbox bench` puts on a server, one file per kind of load, and how
// it is measured (load.go): a call that was due counts from when it was due, so that a server which
// stands still is seen to. It calls servers as any client does and knows nothing of what they are made of.
package bench

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"signalbox/internal/cli/command"
	"signalbox/internal/cli/output"
	"signalbox/internal/fault"
)

// New is the group of commands `bench`.
func New(a *command.App) *cobra.Command {
	return command.Group("bench", "Load on a running server, with latencies and throughput",
		newSignal(a), newHarness(a), newMail(a), newProxy(a))
}

// bench is one command: its load, and where it is shown.
type bench struct {
	*command.App
	flags
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
func newBench(a *command.App, c *cobra.Command, what string, connections int) *bench {
	b := &bench{App: a}
	a.WithJSON(c)
	c.Flags().IntVar(&b.connections, "connections", connections, "how many connections send at once")
	c.Flags().DurationVar(&b.duration, "duration", 10*time.Second, "for how long")
	c.Flags().Float64Var(&b.rate, "rate", 0,
		"how many "+what+"s are due in a second; 0 is the next as soon as one was answered")
	return b
}

// agentFlags lets the load be that of an agent which is there.
func (b *bench) agentFlags(c *cobra.Command) {
	b.agent.Add(c, "a key of the agent that sends them; without one an agent is made, and removed afterwards")
}

// run makes a load and prints what it came to.
func (b *bench) run(ctx context.Context, what string, load func(context.Context) (Report, error)) error {
	if b.connections < 1 || b.connections > 10_000 || b.duration <= 0 || b.rate < 0 {
		return command.Usage("--connections takes 1 to 10000, --duration a time such as 10s, and --rate 0 or more.")
	}
	report, err := load(ctx)
	if err == nil {
		err = b.Show(report, func(w io.Writer) { printReport(w, report) })
	}
	if err != nil {
		return err
	}
	for _, l := range []*Load{&report.Server, report.Half} {
		if l != nil && l.Errors > 0 {
			return fault.New(fault.VerificationFailed,
				"%s of %s were not answered as they should be.", output.Thousands(l.Errors), output.Count(int(l.Requests), what))
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

func printReport(w io.Writer, r Report) {
	row := func(name string, l Load) []string {
		cells := []string{name, output.Thousands(l.Requests), output.Thousands(int64(l.PerSecond)), output.Thousands(l.Errors)}
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
	output.Table(w, "", []string{"", "REQUESTS", "A SECOND", "ERRORS", "P50", "P90", "P99", "P99.9", "MAX"}, rows)
	for _, status := range slices.Sorted(maps.Keys(r.Server.Statuses)) {
		_, _ = fmt.Fprintf(w, "%s × %s\n", status, output.Thousands(r.Server.Statuses[status]))
	}
	if r.Server.Unsent > 0 {
		_, _ = fmt.Fprintf(w, "due and never sent, since no connection was free: %s; they count as still waiting\n",
			output.Thousands(r.Server.Unsent))
	}
	printLeft(w, r)
	if r.Ratio > 0 {
		_, _ = fmt.Fprintf(w, "%.2f of the bare handler\n", r.Ratio)
	}
}

// printLeft says what became of the gates.
func printLeft(w io.Writer, r Report) {
	if r.Rejected > 0 {
		_, _ = fmt.Fprintf(w, "rejected afterwards: %s\n", output.Count(int(r.Rejected), "gate"))
	}
	if r.Left > 0 {
		_, _ = fmt.Fprintf(w, "left to wait in the deck bench: %s; `signalbox gates ls --project bench` shows them, `signalbox gates reject` ends one\n", output.Count(int(r.Left), "gate"))
	}
}
