package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"signalbox/internal/fault"
	"signalbox/internal/gate"
	"signalbox/internal/signal"
	"signalbox/internal/wire"
)

func newBench(a *app) *cobra.Command {
	return group("bench", "Load on a running server, with latencies and throughput", newBenchSignal(a), newBenchHarness(a), newBenchMail(a), newBenchProxy(a))
}

// benchFlags are what a load is made of.
type benchFlags struct {
	agent       agentFlags
	connections int
	duration    time.Duration
	rate        float64
	gate        bool
	compare     bool
}

// BenchReport is what a load came to.
type BenchReport struct {
	Server Load    `json:"server"`
	Half   *Load   `json:"half_rate,omitempty"` // calls that are due half as often
	Bare   *Load   `json:"bare,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"` // of the calls a second
	// Gates that were opened, and at the end rejected or left to wait.
	Rejected int64 `json:"gates_rejected"`
	Left     int64 `json:"gates_left"`
}

func newBenchSignal(a *app) *cobra.Command {
	c := a.withJSON(&cobra.Command{
		Use: "signal", Short: "Send signals as fast as they are answered, or at a rate",
		Long: "Sends signals, each of a run of its own, and prints how many were answered and how\nfast. With --rate a signal counts from when it was due, so that a server which stands\nstill is seen to.\n\n" +
			"Signals are recorded for good, in the deck bench: use a server that is there for it.\nWith --gate each one opens a gate. At the end these are rejected with the operator's\ntoken, for which a minute is taken; what is left then, or without a token, is counted.",
		Example: "  signalbox bench signal --compare\n  signalbox bench signal --rate 2000 --duration 30s", Args: exactly(0, "no arguments"),
	})
	var f benchFlags
	f.add(c, "signal")
	c.Flags().BoolVar(&f.gate, "gate", true, "ask for a gate with every signal")
	c.Flags().BoolVar(&f.compare, "compare", false, "measure a bare HTTP handler in the same way first, and print the ratio")
	c.RunE = func(c *cobra.Command, _ []string) error {
		return a.bench(c.Context(), f, "signal", a.benchSignal)
	}
	return c
}

// add gives a command the flags of every load.
func (f *benchFlags) add(c *cobra.Command, what string) {
	c.Flags().IntVar(&f.connections, "connections", 64, "how many connections send at once")
	c.Flags().DurationVar(&f.duration, "duration", 10*time.Second, "for how long")
	c.Flags().Float64Var(&f.rate, "rate", 0, "how many "+what+"s are due in a second; 0 is the next as soon as one was answered")
	c.Flags().StringVar(&f.agent.key, "key", "", "a key of the agent that sends them; without one an agent is made, and removed afterwards")
	c.Flags().StringVar(&f.agent.name, "agent", "", "the name of that agent")
}

// bench makes a load and prints what it came to.
func (a *app) bench(ctx context.Context, f benchFlags, what string, load func(context.Context, benchFlags) (BenchReport, error)) error {
	if f.connections < 1 || f.connections > 10_000 || f.duration <= 0 || f.rate < 0 {
		return usage("--connections takes 1 to 10000, --duration a time such as 10s, and --rate 0 or more.")
	}
	report, err := load(ctx, f)
	if err != nil {
		return err
	}
	if err := a.show(report, func(w io.Writer) { printBench(w, report) }); err != nil {
		return err
	}
	for _, l := range []*Load{&report.Server, report.Half} {
		if l != nil && l.Errors > 0 {
			return fault.New(fault.VerificationFailed, "%s of %s were not answered as they should be.", thousands(l.Errors), number(int(l.Requests), what))
		}
	}
	return nil
}

func (a *app) benchSignal(ctx context.Context, f benchFlags) (report BenchReport, err error) {
	base, err := a.address()
	if err != nil {
		return report, err
	}
	agent, err := f.agent.agent(ctx, "bench-", a.client)
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, agent.giveBack(ctx)) }()
	runs := "bench-" + strings.ToLower(rand.Text()[:10]) + "-"
	l := load{
		url: base + "/amp/signal", key: agent.key, connections: f.connections, duration: f.duration, rate: f.rate,
		body: benchSignals(agent.name, runs, f.gate),
	}
	if f.compare {
		bare, err := a.benchBare(ctx, l)
		if err != nil {
			return report, err
		}
		report.Bare = &bare
	}
	report.Server, err = a.measure(ctx, "server", l)
	if opened := report.Server.Statuses[fmt.Sprint(http.StatusAccepted)]; opened > 0 {
		report.Rejected = a.clear(ctx, agent.name, runs, f.connections)
		report.Left = max(0, opened-report.Rejected)
	}
	if err != nil {
		printLeft(a.err, report)
		return report, err
	}
	report.compare()
	return report, nil
}

// compare works out the ratio, if there is something to compare with.
func (r *BenchReport) compare() {
	if r.Bare != nil && r.Bare.PerSecond > 0 {
		r.Ratio = r.Server.PerSecond / r.Bare.PerSecond
	}
}

// clearTime is how long the gates of a load may take to be rejected.
const clearTime = time.Minute

// clear rejects the gates of the agent's runs, and returns how many. What goes wrong leaves
// gates, and that is counted.
func (a *app) clear(ctx context.Context, agent, runs string, connections int) int64 {
	c, err := a.client()
	if err != nil {
		return 0
	}
	// Also when the command was stopped by Ctrl-C.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
	defer cancel()
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	c.http.Transport = transport
	_, _ = fmt.Fprintln(a.err, "rejecting the gates that were opened")
	var rejected atomic.Int64
	q := url.Values{"status": {"pending"}, "project": {"bench"}, "agent": {agent}, "limit": {fmt.Sprint(wire.MaxPage)}}
	for {
		var page gate.GatePage
		if err := c.call(ctx, http.MethodGet, "/ops/gates?"+q.Encode(), nil, &page); err != nil {
			return rejected.Load()
		}
		var rejecting errgroup.Group
		rejecting.SetLimit(connections)
		for _, g := range page.Gates {
			if !strings.HasPrefix(g.Origin.Reference, runs) {
				continue
			}
			rejecting.Go(func() error {
				if c.call(ctx, http.MethodPost, "/ops/gates/"+g.ID+"/reject", gate.Decision{Note: "The load has ended."}, new(gate.Gate)) == nil {
					rejected.Add(1)
				}
				return nil
			})
		}
		_ = rejecting.Wait() // each says by itself whether it was rejected
		if page.Next == "" {
			return rejected.Load()
		}
		q.Set("cursor", page.Next)
	}
}

// benchSignals makes the signals: the same but for the run, whose name begins with runs.
func benchSignals(agent, runs string, gated bool) func(int64) []byte {
	now := time.Now().UTC().Format(time.RFC3339)
	before := fmt.Sprintf(`{"amp_version":"1.0","agent_id":%q,"run_id":"%s`, agent, runs)
	after := fmt.Sprintf(`","project_id":"bench","status":"completed","summary":"Rewrote a resume for a role at a bank","proposed_action":"Send to applicant",`+
		`"artifacts":[{"type":"text","content":"Dear reader, this is what would be sent."}],"model":"claude-sonnet-4-6","input_tokens":1842,"output_tokens":614,`+
		`"cost_usd":0.014736,"started_at":%q,"completed_at":%q,"metadata":{"source":"signalbox bench"},"gate_required":%t,"webhook_url":null}`, now, now, gated)
	return func(i int64) []byte { return fmt.Appendf(nil, "%s%d%s", before, i, after) }
}

// bareSignal is a payload, for a handler that does nothing but read it.
type bareSignal struct {
	Version        string     `json:"amp_version"`
	AgentID        string     `json:"agent_id"`
	RunID          string     `json:"run_id"`
	ProjectID      string     `json:"project_id"`
	Status         string     `json:"status"`
	Summary        string     `json:"summary"`
	ProposedAction string     `json:"proposed_action"`
	Artifacts      []wire.Raw `json:"artifacts"`
	Model          string     `json:"model"`
	InputTokens    int64      `json:"input_tokens"`
	OutputTokens   int64      `json:"output_tokens"`
	CostUSD        float64    `json:"cost_usd"`
	StartedAt      time.Time  `json:"started_at"`
	CompletedAt    time.Time  `json:"completed_at"`
	Metadata       wire.Raw   `json:"metadata"`
	GateRequired   bool       `json:"gate_required"`
	WebhookURL     *string    `json:"webhook_url"`
}

// benchBare measures a handler that reads and parses a signal and answers: what is left
// of the time is what recording and deciding take.
func (a *app) benchBare(ctx context.Context, l load) (Load, error) {
	gateID := "gate_00000000000000000000000000"
	return a.measureBare(ctx, l, "/amp/signal", func(w http.ResponseWriter, r *http.Request) {
		var s bareSignal
		err := wire.ReadJSON(w, r, 1<<20, &s)
		if err == nil {
			err = wire.Reply(w, http.StatusAccepted, signal.Answer{Status: "pending", GateID: &gateID, Message: "Awaiting operator approval"})
		}
		if err != nil {
			wire.Fail(w, err)
		}
	})
}

// measureBare measures a handler on a listener of its own.
func (a *app) measureBare(ctx context.Context, l load, path string, handler http.HandlerFunc) (Load, error) {
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
	return a.measure(ctx, bareName, l)
}

const bareName = "bare handler"

// measure runs a load and shows how far it has come: in place on a terminal, a line every
// few seconds elsewhere.
func (a *app) measure(ctx context.Context, what string, l load) (Load, error) {
	began, last := time.Now(), time.Now()
	terminal := isTerminal(a.err)
	if terminal {
		defer func() { _, _ = fmt.Fprint(a.err, "\r\x1b[K") }()
	}
	return l.run(ctx, func(done int64) {
		line := fmt.Sprintf("%s: %s of %s, %s requests", what, time.Since(began).Round(time.Second), l.duration, thousands(done))
		switch {
		case terminal:
			_, _ = fmt.Fprintf(a.err, "\r\x1b[K%s", line)
		case time.Since(last) >= 5*time.Second:
			last = time.Now()
			_, _ = fmt.Fprintln(a.err, line)
		}
	})
}

func printBench(w io.Writer, r BenchReport) {
	row := func(name string, l Load) []string {
		cells := []string{name, thousands(l.Requests), thousands(int64(l.PerSecond)), thousands(l.Errors)}
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
	table(w, "", []string{"", "REQUESTS", "A SECOND", "ERRORS", "P50", "P90", "P99", "P99.9", "MAX"}, rows)
	for _, status := range slices.Sorted(maps.Keys(r.Server.Statuses)) {
		_, _ = fmt.Fprintf(w, "%s × %s\n", status, thousands(r.Server.Statuses[status]))
	}
	if r.Server.Unsent > 0 {
		_, _ = fmt.Fprintf(w, "due and never sent, since no connection was free: %s; they count as still waiting\n", thousands(r.Server.Unsent))
	}
	printLeft(w, r)
	if r.Ratio > 0 {
		_, _ = fmt.Fprintf(w, "%.2f of the bare handler\n", r.Ratio)
	}
}

// printLeft says what became of the gates.
func printLeft(w io.Writer, r BenchReport) {
	if r.Rejected > 0 {
		_, _ = fmt.Fprintf(w, "rejected afterwards: %s\n", number(int(r.Rejected), "gate"))
	}
	if r.Left > 0 {
		_, _ = fmt.Fprintf(w, "left to wait in the deck bench: %s; `signalbox gates ls --project bench` shows them, `signalbox gates reject` ends one\n", number(int(r.Left), "gate"))
	}
}
