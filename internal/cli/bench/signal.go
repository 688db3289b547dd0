package bench

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"signalbox/internal/cli/api"
	"signalbox/internal/cli/command"
	"signalbox/internal/gate"
	"signalbox/internal/signal"
	"signalbox/internal/wire"
)

// newSignal makes `bench signal`.
func newSignal(a *command.App) *command.Command {
	b := newBench(a, "signal", 64, &command.Command{
		Use: "signal", Short: "Send signals as fast as they are answered, or at a rate",
		Long: `Sends signals, each of a run of its own, and prints how many were answered and how fast.
With --rate, the time of a signal begins when it is due, so that stalls of the server show
in the latencies.

Signals are recorded for good, in the deck bench. Use a server that you set up for it.
With --gate each one opens a gate. The gates are rejected at the end with the operator's
token, for a minute at most. Gates that are left then, or without a token, are counted.`,
		Example: `  signalbox bench signal --compare
  signalbox bench signal --rate 2000 --duration 30s`,
		Args: command.NoArguments(),
	})
	b.agentFlags()
	b.command.Flags().BoolVar(&b.gate, "gate", true, "ask for a gate with every signal")
	b.compareFlag("a bare HTTP handler")
	return b.withLoad(b.signal)
}

// signal makes the load, and rejects the gates that it has opened, also after an error or Ctrl-C.
func (b *bench) signal(ctx context.Context) (report Report, err error) {
	base, err := b.Address()
	if err != nil {
		return report, err
	}
	agent, err := b.agent.Agent(ctx, "bench-", b.Client)
	if err != nil {
		return report, err
	}
	// An agent that was made for the load is removed with its keys; what it did stays in the ledger.
	defer func() { err = errors.Join(err, agent.GiveBack(ctx)) }()
	// The prefix tells the runs of this load from those of others in the same deck.
	runs := "bench-" + strings.ToLower(rand.Text()[:10]) + "-"
	l := b.load(base + "/amp/signal")
	l.key, l.body = agent.Key, signals(agent.Name, runs, b.gate)
	// The bare handler first, while the machine is as idle as it gets.
	if b.compare {
		bare, err := b.bareSignals(ctx, l)
		if err != nil {
			return report, err
		}
		report.Bare = &bare
	}
	report.Server, err = b.measure(ctx, "server", l)
	// Before the error is looked at: gates that were opened have to be rejected in any case.
	if opened := report.Server.Statuses[fmt.Sprint(http.StatusAccepted)]; opened > 0 {
		report.Rejected = b.rejectGates(ctx, agent.Name, runs, b.connections)
		report.Left = max(0, opened-report.Rejected)
	}
	if err != nil {
		printLeft(b.Err, report)
		return report, err
	}
	report.compare()
	return report, nil
}

// clearTime is how long the gates of a load may take to be rejected.
const clearTime = time.Minute

// rejectGates rejects the gates of the agent's runs and returns how many it rejected. An error leaves gates, and
// the caller counts those.
func (b *bench) rejectGates(ctx context.Context, agent, runs string, connections int) int64 {
	c, err := b.Client()
	if err != nil {
		return 0
	}
	// Also if the command was stopped with Ctrl-C.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), clearTime)
	defer cancel()
	// The client's own transport keeps few connections open, and there may be 100,000 gates.
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: connections}
	defer transport.CloseIdleConnections()
	c.HTTP.Transport = transport
	b.Err.Print("rejecting the gates that were opened")
	var rejected atomic.Int64
	q := api.Query{"status": "pending", "project": "bench", "agent": agent, "limit": wire.MaxPage}
	_ = api.Pages(ctx, c, "/ops/gates", q, func(page gate.GatePage) string { // what is left is counted
		var rejecting errgroup.Group
		rejecting.SetLimit(connections)
		for _, g := range page.Gates {
			// The deck may have gates of another benchmark.
			if !strings.HasPrefix(g.Origin.Reference, runs) {
				continue
			}
			rejecting.Go(func() error {
				if c.Call(ctx, api.Decide(g.ID, api.Reject, gate.Decision{
					Note: "The load has ended.", Digest: g.Digest,
				}), new(gate.Gate)) == nil {
					rejected.Add(1)
				}
				return nil
			})
		}
		_ = rejecting.Wait() // each says by itself whether it was rejected
		return page.Next
	})
	return rejected.Load()
}

// signals makes the signals: the same but for the run_id, which begins with runs.
func signals(agent, runs string, gated bool) func(int64) []byte {
	// Everything but the number is formatted once; making a body must cost less than sending it.
	now := time.Now().UTC().Format(time.RFC3339)
	before := fmt.Sprintf(`{"amp_version":"1.0","agent_id":%q,"run_id":"%s`, agent, runs)
	after := fmt.Sprintf(`","project_id":"bench","status":"completed",`+
		`"summary":"Rewrote a resume for a role at a bank","proposed_action":"Send to applicant",`+
		`"artifacts":[{"type":"text","content":"Dear reader, this is what would be sent."}],`+
		`"model":"claude-sonnet-4-6","input_tokens":1842,"output_tokens":614,"cost_usd":0.014736,`+
		`"started_at":%q,"completed_at":%q,"metadata":{"source":"signalbox bench"},`+
		`"gate_required":%t,"webhook_url":null}`, now, now, gated)
	return func(i int64) []byte { return fmt.Appendf(nil, "%s%d%s", before, i, after) }
}

// bareSignals measures a handler that reads and parses a signal and answers. The difference to the server
// is what recording and deciding take.
func (b *bench) bareSignals(ctx context.Context, l load) (Load, error) {
	gateID := "gate_00000000000000000000000000"
	return b.measureBare(ctx, l, "/amp/signal", func(w http.ResponseWriter, r *http.Request) {
		var s signal.SignalDocument
		err := wire.ReadJSON(w, r, 1<<20, &s)
		if err == nil {
			err = wire.Reply(w, http.StatusAccepted,
				signal.Answer{Status: "pending", GateID: &gateID, Message: "Awaiting operator approval"})
		}
		if err != nil {
			wire.Fail(w, err)
		}
	})
}
