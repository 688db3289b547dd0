package counter

import "github.com/prometheus/client_golang/prometheus"

// The metrics of what was counted. The counters keep the number of models that are told apart bounded.
var (
	spentLabels  = []string{"workspace", "protocol", "model"}
	costMetric   = prometheus.NewDesc("signalbox_cost_dollars_total", "What models cost.", spentLabels, nil)
	tokensMetric = prometheus.NewDesc("signalbox_tokens_total", "Tokens that models read (input) and wrote (output).",
		append(spentLabels, "direction"), nil)
	callsMetric = prometheus.NewDesc("signalbox_model_calls_total", "Calls of models that the proxy carried.", spentLabels,
		nil)
	unpricedMetric = prometheus.NewDesc("signalbox_unpriced_total", "Calls and runs whose model has no price of its own.",
		spentLabels, nil)
	runsMetric = prometheus.NewDesc("signalbox_runs_total", "Runs that have ended.",
		[]string{"workspace", "protocol", "status"}, nil)
	gatesMetric = prometheus.NewDesc("signalbox_gates_total", "Gates that were opened, and how they ended.",
		[]string{"workspace", "protocol", "outcome"}, nil)
	blocksMetric = prometheus.NewDesc("signalbox_blocks_total", "What rules refused.",
		[]string{"workspace", "protocol"}, nil)
	waitsMetric = prometheus.NewDesc("signalbox_gates_waiting", "Gates that wait.", []string{"workspace"}, nil)
)

// Describe names the metrics, which begin at 0 again when everything is counted anew.
func (e Ever) Describe(to chan<- *prometheus.Desc) {
	for _, one := range []*prometheus.Desc{
		costMetric, tokensMetric, callsMetric, unpricedMetric, runsMetric, gatesMetric, blocksMetric, waitsMetric,
	} {
		to <- one
	}
}

// Collect sends them.
func (e Ever) Collect(to chan<- prometheus.Metric) {
	send := func(d *prometheus.Desc, n float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
	}
	for _, one := range e.Models {
		of, n := []string{one.Workspace, one.Protocol, one.Model}, &one.Counts
		send(costMetric, n.CostUSD, of...)
		send(tokensMetric, float64(n.InputTokens), one.Workspace, one.Protocol, one.Model, "input")
		send(tokensMetric, float64(n.OutputTokens), one.Workspace, one.Protocol, one.Model, "output")
		send(callsMetric, float64(n.Calls), of...)
		send(unpricedMetric, float64(n.Costs.UnknownModel), of...)
	}
	for _, one := range e.Protocols {
		n := &one.Counts
		for status, ended := range map[string]int64{
			"completed": n.Runs.Completed, "failed": n.Runs.Failed, "interrupted": n.Runs.Interrupted,
			"cancelled": n.Runs.Cancelled, "stopped": n.Runs.Stopped,
		} {
			send(runsMetric, float64(ended), one.Workspace, one.Protocol, status)
		}
		for outcome, gates := range map[string]int64{
			"opened": n.Gates.Opened, "approved": n.Gates.Approved, "rejected": n.Gates.Rejected, "expired": n.Gates.Expired,
			"withdrawn": n.Gates.Withdrawn,
		} {
			send(gatesMetric, float64(gates), one.Workspace, one.Protocol, outcome)
		}
		send(blocksMetric, float64(n.Blocks), one.Workspace, one.Protocol)
	}
	for workspace, n := range e.Waiting {
		to <- prometheus.MustNewConstMetric(waitsMetric, prometheus.GaugeValue, float64(n), workspace)
	}
}
