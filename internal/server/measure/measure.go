// Package measure reads the numbers of /metrics that are about agents, gates and queues: what waits, how long, what was
// decided and what is behind. They come from counts of tables and from counters, never from lists, so that they are
// exact however much there is.
//
// It owns the names of these metrics, which dashboards and alerts use, and bounds how many series there can be. It must not change anything. Who may see which workspace is what the context says.
package measure

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"signalbox/internal/audit"
	"signalbox/internal/backup"
	"signalbox/internal/counter"
	"signalbox/internal/deliver"
	"signalbox/internal/drift"
	"signalbox/internal/gate"
	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/mail/quota"
	"signalbox/internal/rulebook/made"
	"signalbox/internal/server/access"
	"signalbox/internal/sink"
	"signalbox/internal/store"
	"signalbox/internal/wire"
)

// Sources are where the numbers come from.
type Sources struct {
	DB       *store.DB
	Counters *counter.Counters
	Gates    *gate.Gates
	Outbox   *deliver.Outbox
	Made     *made.Tally
	Sinks    *sink.Sinks
	Ledger   *ledger.Ledger
	Harness  *harness.Harness
	Access   *access.Log
	Audit    *audit.Audit
	Backups  *backup.Schedule
	Keeper   *drift.Keeper
	Now      func() time.Time
}

// The metrics beside those of package counter.
var (
	byProtocol = gauge("gates_waiting_by_protocol", "Gates that wait, by the protocol that opened them.", "workspace",
		"protocol")
	byRisk = gauge("gates_waiting_by_risk", "Gates that wait, by risk.", "workspace", "risk")
	oldest = gauge("gates_oldest_waiting_seconds", "How long the gate has waited that has waited longest.",
		"workspace")
	held = gauge("calls_held", "Calls of models that wait for a person.", "workspace")
	done = prometheus.NewDesc("signalbox_decisions_total", "Decisions of rules that this process has made.",
		[]string{"workspace", "protocol", "verdict", "rule"}, nil)
	deliveries = gauge("deliveries", "Webhooks, notifications and mail that are not delivered: pending, failing or dead.",
		"workspace", "sender", "state")
	deliveryAge = gauge("deliveries_oldest_seconds", "How long the delivery has waited that was queued first.",
		"workspace", "sender", "state")
	mailQueue  = gauge("mail_queue", "Messages that wait in the queues of local agents.")
	exportLag  = gauge("export_lag_entries", "Entries that a sink has not sent yet.", "sink")
	exportAge  = gauge("export_lag_seconds", "How old the oldest entry is that a sink has not sent yet.", "sink")
	exportFail = gauge("export_failing", "1 when the last try of this node has failed.", "sink")
)

// all are the metrics, for Describe.
var all = []*prometheus.Desc{
	byProtocol, byRisk, oldest, held, done, deliveries, deliveryAge, mailQueue, exportLag, exportAge, exportFail,
}

func gauge(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("signalbox_"+name, help, labels, nil)
}

// proxied is the protocol of calls that the proxy holds, as gates name it.
const proxied = "proxy"

// Numbers are the numbers of one moment, as a collector of Prometheus.
type Numbers struct {
	ever    counter.Ever
	metrics []prometheus.Metric
}

// Read reads the numbers of the workspaces that the caller may see.
func (s Sources) Read(ctx context.Context) (*Numbers, error) {
	n := &Numbers{}
	var err error
	if n.ever, err = s.Counters.Ever(ctx); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, *Numbers) error{s.readGates, s.readDeliveries, s.readServer} {
		if err := read(ctx, n); err != nil {
			return nil, err
		}
	}
	s.Made.Each(func(k made.Kind, count int64) {
		if wire.InScope(ctx, k.Workspace) {
			n.add(done, prometheus.CounterValue, float64(count), k.Workspace, k.Protocol, k.Verdict, k.Rule)
		}
	})
	return n, nil
}

// readGates reads what waits for people. What waits by protocol is what was opened and has not ended, as it was
// counted.
func (s Sources) readGates(ctx context.Context, n *Numbers) error {
	for _, one := range n.ever.Protocols {
		g := one.Counts.Gates
		waiting := max(g.Opened-g.Approved-g.Rejected-g.Expired-g.Withdrawn, 0)
		n.add(byProtocol, prometheus.GaugeValue, float64(waiting), one.Workspace, one.Protocol)
		if one.Protocol == proxied {
			n.add(held, prometheus.GaugeValue, float64(waiting), one.Workspace)
		}
	}
	risks, err := s.Gates.WaitingByRisk(ctx, wire.Scope(ctx))
	first := map[string]time.Time{}
	for _, w := range risks {
		n.add(byRisk, prometheus.GaugeValue, float64(w.Gates), w.Workspace, w.Risk)
		if at, known := first[w.Workspace]; !known || w.Oldest.Before(at) {
			first[w.Workspace] = w.Oldest
		}
	}
	for workspace, at := range first {
		n.add(oldest, prometheus.GaugeValue, s.since(at), workspace)
	}
	return err
}

// readDeliveries reads what is on its way out.
func (s Sources) readDeliveries(ctx context.Context, n *Numbers) error {
	queues, err := s.Outbox.Undelivered(ctx, wire.Scope(ctx))
	for _, q := range queues {
		n.add(deliveries, prometheus.GaugeValue, float64(q.Deliveries), q.Workspace, q.Sender, q.State)
		n.add(deliveryAge, prometheus.GaugeValue, s.since(q.Oldest), q.Workspace, q.Sender, q.State)
	}
	return err
}

// readServer reads what is about the whole server, for callers who are not confined to a workspace.
func (s Sources) readServer(ctx context.Context, n *Numbers) error {
	if wire.Scope(ctx) != "" {
		return nil
	}
	waiting, err := quota.Waiting(ctx, s.DB)
	if err != nil {
		return err
	}
	n.add(mailQueue, prometheus.GaugeValue, float64(waiting))
	states, err := s.Sinks.States(ctx)
	for _, state := range states {
		n.add(exportLag, prometheus.GaugeValue, float64(state.Lag), state.Name)
		age, failing := 0.0, 0.0
		if state.Since != nil {
			age = s.since(*state.Since)
		}
		if state.Problem != "" {
			failing = 1
		}
		n.add(exportAge, prometheus.GaugeValue, age, state.Name)
		n.add(exportFail, prometheus.GaugeValue, failing, state.Name)
	}
	return err
}

// since is how long ago something was, in seconds.
func (s Sources) since(at time.Time) float64 { return max(s.Now().Sub(at).Seconds(), 0) }

// add adds a number.
func (n *Numbers) add(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
	n.metrics = append(n.metrics, prometheus.MustNewConstMetric(d, kind, value, labels...))
}

// Describe names the metrics.
func (n *Numbers) Describe(to chan<- *prometheus.Desc) {
	n.ever.Describe(to)
	for _, d := range all {
		to <- d
	}
}

// Collect sends them.
func (n *Numbers) Collect(to chan<- prometheus.Metric) {
	n.ever.Collect(to)
	for _, m := range n.metrics {
		to <- m
	}
}
