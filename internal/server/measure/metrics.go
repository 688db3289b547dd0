package measure

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"signalbox/internal/harness"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Metrics are the numbers of /metrics, in a registry of their own, so that tests can run several servers in one
// process. The page may be public, and then has no names of agents or workspaces, and no money: those are for callers
// with an operator's token.
type Metrics struct {
	requests *prometheus.HistogramVec
	registry *prometheus.Registry
	handler  http.Handler
	sources  Sources
}

// New registers all numbers. Names are part of the interface: dashboards and alerts use them. Numbers of the
// ledger count this process only, not the other nodes of the database.
func New(c Sources) *Metrics {
	r := prometheus.NewRegistry()
	m := &Metrics{
		requests: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "signalbox_http_request_seconds", Help: "Time to answer a call.",
			// From half a millisecond, a read from memory, to 30 s, a call that waits for a person.
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1, 5, 30},
		}, []string{"method", "path", "status"}),
		registry: r, handler: promhttp.HandlerFor(r, promhttp.HandlerOpts{}), sources: c,
	}
	r.MustRegister(m.requests, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	written := func(name, help string, read func(ledger.Stats) float64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			return read(c.Ledger.Stats())
		}))
	}
	written("signalbox_ledger_entries_written_total", "Entries this process has committed.", func(s ledger.Stats) float64 {
		return float64(s.Entries)
	})
	written("signalbox_ledger_batches_total", "Transactions this process has committed.", func(s ledger.Stats) float64 {
		return float64(s.Batches)
	})
	written("signalbox_ledger_commit_seconds_total", "Time spent committing.", func(s ledger.Stats) float64 {
		return s.CommitSeconds
	})
	gauge := func(name, help string, read func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read))
	}
	harnessCounter := func(name, help string, read func(harness.Stats) float64) {
		r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
			return read(c.Harness.Stats())
		}))
	}
	harnessCounter("signalbox_harness_notifications_rejected_total", "Notifications of AHP that were refused.",
		func(s harness.Stats) float64 {
			return float64(s.Rejected)
		})
	harnessCounter("signalbox_harness_notifications_dropped_total", "Telemetry of AHP that there was no room for.",
		func(s harness.Stats) float64 {
			return float64(s.Dropped)
		})
	gauge("signalbox_harness_queue", "Notifications of AHP that wait to be written.", func() float64 {
		return float64(c.Harness.Stats().Queue)
	})
	r.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "signalbox_access_log_lost_total", Help: "Lines of the access log that could not be written.",
	}, func() float64 { return float64(c.Access.Lost()) }))
	gauge("signalbox_ledger_queue", "Writes that are waiting.", func() float64 { return float64(c.Ledger.Stats().Queue) })
	gauge("signalbox_ledger_refuses_writes", "1 when the ledger is not what was signed.", func() float64 {
		if c.Ledger.Mismatch() != nil {
			return 1
		}
		return 0
	})
	gauge("signalbox_clock_offset_seconds", "The server's time, less the machine's clock; 0 while that is followed.",
		func() float64 { return c.Keeper.State().Seconds })
	gauge("signalbox_clock_jumps", "Jumps of clocks that this process has found.", func() float64 {
		return float64(c.Keeper.Jumps())
	})
	gauge("signalbox_ledger_head", "The sequence number of the last entry.", func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		// -1 stands for unknown. Zero would look like an empty ledger and trigger alerts.
		head, err := c.Ledger.Head(ctx)
		if err != nil {
			return -1
		}
		return float64(head)
	})
	r.MustRegister(c.Backups)
	c.Audit.Register(r)
	return m
}

// Of is what counts the calls of a route. The label is the pattern of the route and not the path, which
// has ids in it: each would be a time series of its own. A series begins with its first call, and is looked up once.
func (m *Metrics) Of(route *wire.Route) func(status int, took time.Duration) {
	var series sync.Map // by status
	return func(status int, took time.Duration) {
		one, known := series.Load(status)
		if !known {
			one, _ = series.LoadOrStore(status, m.requests.WithLabelValues(route.Method, route.Path, strconv.Itoa(status)))
		}
		one.(prometheus.Observer).Observe(took.Seconds())
	}
}

// Handle answers GET /metrics. spending adds what was counted, of the workspaces that the caller may see.
func (m *Metrics) Handle(w http.ResponseWriter, r *http.Request, spending bool) error {
	if !spending {
		m.handler.ServeHTTP(w, r)
		return nil
	}
	all, err := m.Gatherer(r.Context())
	if err != nil {
		return err
	}
	promhttp.HandlerFor(all, promhttp.HandlerOpts{}).ServeHTTP(w, r)
	return nil
}

// Gatherer has all numbers of this moment, of the workspaces that the context says.
func (m *Metrics) Gatherer(ctx context.Context) (prometheus.Gatherer, error) {
	numbers, err := m.sources.Read(ctx)
	if err != nil {
		return nil, err
	}
	own := prometheus.NewRegistry()
	own.MustRegister(numbers)
	return prometheus.Gatherers{m.registry, own}, nil
}
