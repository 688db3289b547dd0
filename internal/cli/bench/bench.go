// Package bench is `signalbox bench`: load on a running server, with latencies and throughput. One file
// per kind of load (signal.go, harness.go, mail.go, proxy.go), and how load is made and measured
// (load.go, histogram.go). It calls servers as any client does and knows nothing of their inside.
//
// # What is measured
//
// A call that is due at a rate is measured from the moment when it was due, not from when a connection
// was free to send it. Otherwise a server that stalls would delay the calls that should have been
// made meanwhile, and their waiting would be missing from the result (coordinated omission).
// Without a rate each connection sends its next call when the last one was answered; latency then
// says little, and throughput is what counts.
//
// --compare puts the same load on a bare handler in the same process first. The ratio of the two is
// what recording and deciding cost, on whatever machine it is measured.
//
// # How to read the table
//
// A SECOND counts calls that have ended, errors too. Latencies are percentiles over all calls of the load,
// to within one per cent; MAX is exact. With --rate, calls that found no free connection count as
// slow as they have waited. A server that keeps up has the rate it was asked for, no unsent calls,
// and a P99 that does not grow with the duration.
//
// # Adding a load
//
// Make a command with newBench and the flags it needs, fill in a load (its address, body and key, or
// dial for another transport), measure it, and return a Report from the function given to withLoad.
// body is called by many goroutines at once and its time counts, so prepare what can be prepared.
//
// # What it leaves behind
//
// Everything it sends is recorded for good. Agents that it makes are removed at the end, gates that it
// opens are rejected, as far as a minute allows, and what is left is said.
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

// New makes the group of commands `bench`.
func New(a *command.App) *command.Command {
	return command.Group("bench", "Load on a running server, with latencies and throughput",
		newSignal(a), newHarness(a), newMail(a), newProxy(a))
}

// bench is one of the commands, with its flags. It lives for one invocation.
type bench struct {
	*command.App
	flags
	command *command.Command
	what    string // the noun of what is sent, in the singular: signal, message
}

// flags are the flags of all loads. Not every command has all of them.
type flags struct {
	agent       command.AgentFlags
	connections int
	duration    time.Duration
	rate        float64 // calls that are due in a second; 0 for as many as are answered
	gate        bool    // signals ask for a gate
	compare     bool    // measure a bare handler first
}

// Report is the result of a load, as --json prints it. A report is made even if calls failed; Load.Errors
// counts those.
type Report struct {
	Server Load    `json:"server"`
	Half   *Load   `json:"half_rate,omitempty"` // the same at half the throughput that was reached
	Bare   *Load   `json:"bare,omitempty"`      // the bare handler, with --compare
	Ratio  float64 `json:"ratio,omitempty"`     // calls a second of the server over the bare handler's
	// Gates that the load opened: rejected at the end, or left to wait.
	Rejected int64 `json:"gates_rejected"`
	Left     int64 `json:"gates_left"`
}

// newBench gives a command the flags that all loads have. connections is the default number of them.
func newBench(a *command.App, what string, connections int, c *command.Command) *bench {
	b := &bench{App: a, what: what, command: a.WithJSON(c)}
	c.Flags().IntVar(&b.connections, "connections", connections, "how many connections send at once")
	c.Flags().DurationVar(&b.duration, "duration", 10*time.Second, "for how long")
	c.Flags().Float64Var(&b.rate, "rate", 0,
		"how many "+what+"s are due in a second; 0 sends the next as soon as one is answered")
	return b
}

// agentFlags adds the flags with which the load uses an existing agent instead of one that is made for it.
func (b *bench) agentFlags() {
	b.agent.Add(b.command, "a key of the agent that sends them; without one an agent is made, and removed afterwards")
}

// compareFlag adds --compare. with names what is measured first.
func (b *bench) compareFlag(with string) {
	b.command.Flags().BoolVar(&b.compare, "compare", false, "measure "+with+" in the same way first, and print the ratio")
}

// withLoad returns the command, with load as what it does.
func (b *bench) withLoad(load func(context.Context) (Report, error)) *command.Command {
	b.command.RunE = func(c *command.Command, _ []string) error { return b.run(c.Context(), load) }
	return b.command
}

// run checks the flags, makes the load and prints the report. Calls that failed make the command fail,
// after the report is printed.
func (b *bench) run(ctx context.Context, load func(context.Context) (Report, error)) error {
	// Before anything is made on the server that would have to be removed again.
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
	// A benchmark with failed calls proves nothing, so the command fails.
	for _, l := range []*Load{&report.Server, report.Half} {
		if l != nil && l.Errors > 0 {
			return fault.New(fault.VerificationFailed,
				"%s of %s were not answered as they should be.", output.Thousands(l.Errors), output.Count(int(l.Requests), b.what))
		}
	}
	return nil
}

// load is a load on an address, with the connections, duration and rate of the flags.
func (b *bench) load(address string) load {
	return load{url: address, connections: b.connections, duration: b.duration, rate: b.rate}
}

// compare fills in the ratio, if a bare handler was measured.
func (r *Report) compare() {
	if r.Bare != nil && r.Bare.PerSecond > 0 {
		r.Ratio = r.Server.PerSecond / r.Bare.PerSecond
	}
}

// measureBare measures a handler in this process, on a listener of its own, with the load l.
func (b *bench) measureBare(ctx context.Context, l load, path string, handler http.HandlerFunc) (Load, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return Load{}, err
	}
	bare := &http.Server{ReadHeaderTimeout: time.Minute, Handler: handler}
	// Close ends Serve, and its goroutine has ended when this function returns.
	served := make(chan error, 1)
	go func() { served <- bare.Serve(listener) }()
	defer func() {
		_ = bare.Close()
		<-served
	}()
	l.url = "http://" + listener.Addr().String() + path
	return b.measure(ctx, bareName, l)
}

// bareName is what tables and progress call the handler that --compare measures.
const bareName = "bare handler"

// measure runs a load, with its progress on standard error.
func (b *bench) measure(ctx context.Context, what string, l load) (Load, error) {
	shown := output.NewProgress(b.Err)
	defer shown.End()
	return l.run(ctx, func(done int64) {
		shown.Say(func(since time.Duration) string {
			return fmt.Sprintf("%s: %s of %s, %s requests", what, since.Round(time.Second), l.duration, output.Thousands(done))
		})
	})
}

// printReport prints a report for people: a table of latencies, then how calls were answered.
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
	// The server first: it is what people look for.
	rows := [][]string{row("server", r.Server)}
	if r.Half != nil {
		rows = append(rows, row("at half the rate", *r.Half))
	}
	if r.Bare != nil {
		rows = append(rows, row(bareName, *r.Bare))
	}
	w.Table("", []string{"", "REQUESTS", "A SECOND", "ERRORS", "P50", "P90", "P99", "P99.9", "MAX"}, rows)
	// How calls were answered: with gates, 202 is the good one, and a 429 says that a limit was in the
	// way.
	for _, status := range slices.Sorted(maps.Keys(r.Server.Statuses)) {
		w.Print("%s × %s", status, output.Thousands(r.Server.Statuses[status]))
	}
	if r.Server.Unsent > 0 {
		w.Print("due but never sent, because no connection was free: %s; counted with the time they waited",
			output.Thousands(r.Server.Unsent))
	}
	printLeft(w, r)
	if r.Ratio > 0 {
		w.Print("%.2f of the bare handler", r.Ratio)
	}
}

// printLeft says what became of the gates, so that nobody wonders where they come from.
func printLeft(w output.Printer, r Report) {
	if r.Rejected > 0 {
		w.Print("rejected afterwards: %s", output.Count(int(r.Rejected), "gate"))
	}
	if r.Left > 0 {
		w.Print("left to wait in the deck bench: %s; `signalbox gates ls --project bench` shows "+
			"them, `signalbox gates reject` ends one", output.Count(int(r.Left), "gate"))
	}
}
