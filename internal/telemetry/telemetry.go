// Package telemetry sends traces and metrics to a collector of OpenTelemetry, as OTLP over HTTP with protobuf. It is
// the only package that knows OpenTelemetry, and off unless the configuration says where the collector is.
//
// Spans are made from entries of the ledger, after they were written, so that nothing on the write path waits for a
// collector. Package sink hands them over from a durable cursor, on one node at a time, and again until the collector
// has them; a span has the same ids every time, since they follow from the entry. Every trace of ours is one trace
// there, below one root. Model calls and tools have the names of the GenAI conventions.
//
// It never has a body, an argument, a prompt or an answer: names, numbers and ids only, cleaned of credentials and cut.
// Metrics are those of /metrics, and two of the GenAI conventions, whose labels are bounded.
package telemetry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"

	"signalbox/internal/fault"
	"signalbox/internal/ledger"
	"signalbox/internal/wire"
)

// Where the collector is, beside its address.
const (
	Off = "off"
	// Environment leaves it to the variables OTEL_EXPORTER_OTLP_….
	Environment = "env"
)

const (
	// callTime is how long a collector may take to answer.
	callTime = 5 * time.Second
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 64 << 10
	// metricsEvery is how often metrics are sent.
	metricsEvery = 30 * time.Second
	// maxSpans is how many spans go into one call.
	maxSpans = 500
	// partly is in the error of a call that the collector has taken, but for some spans (OTLP forbids to send them
	// again). The SDK has no other sign of it.
	partly = "OTLP partial success"
)

// Options say what is sent where.
type Options struct {
	Ledger  *ledger.Ledger
	Log     *slog.Logger
	Version string
	To      string      // Off, Environment, or an address below which /v1/traces and /v1/metrics are
	Headers wire.Secret // name=value, with commas between
	// Every is how often metrics are sent; 0 is half a minute.
	Every time.Duration
}

// Telemetry sends. New makes it; nil sends nothing.
type Telemetry struct {
	ledger   *ledger.Ledger
	log      *slog.Logger
	traces   *otlptrace.Exporter
	metrics  *metric.MeterProvider
	resource *resource.Resource
	genAI    *instruments
	known    map[string]bool  // traces that have their root; belongs to the one who calls Take, as the next does
	looked   map[string]int64 // the first entries of the traces in what is taken
	numbers  atomic.Pointer[Numbers]
}

// Numbers has the metrics of this moment.
type Numbers func(context.Context) (prometheus.Gatherer, error)

// Measure says where metrics come from, beside those of the GenAI conventions.
func (t *Telemetry) Measure(from Numbers) {
	if t != nil {
		t.numbers.Store(&from)
	}
}

// CheckTarget checks where the collector is. Its error continues a sentence that begins with the name of the setting.
func CheckTarget(text string) error {
	u, err := url.Parse(text)
	if text == Off || text == Environment {
		return nil
	}
	if err != nil || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil ||
		u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("should be %s, %s for the variables OTEL_EXPORTER_OTLP_…, or an address such as "+
			"http://127.0.0.1:4318", Off, Environment)
	}
	return nil
}

// New connects to nothing yet. It returns nil if telemetry is off.
func New(ctx context.Context, o Options) (*Telemetry, error) {
	to := o.To
	if to == Off || to == "" {
		return nil, nil //nolint:nilnil // telemetry that is off is nil, and may be used
	}
	client, err := newClient()
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for pair := range strings.SplitSeq(o.Headers.Reveal(), ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
	}
	t := &Telemetry{
		ledger: o.Ledger, log: o.Log, known: map[string]bool{},
		resource: resource.NewSchemaless(attribute.String("service.name", "signalbox"),
			attribute.String("service.version", o.Version)),
	}
	traceOptions := []otlptracehttp.Option{
		otlptracehttp.WithHTTPClient(client), otlptracehttp.WithMaxResponseSize(maxAnswer),
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}),
	}
	metricOptions := []otlpmetrichttp.Option{
		otlpmetrichttp.WithHTTPClient(client), otlpmetrichttp.WithMaxResponseSize(maxAnswer),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{}),
	}
	if len(headers) > 0 {
		traceOptions = append(traceOptions, otlptracehttp.WithHeaders(headers))
		metricOptions = append(metricOptions, otlpmetrichttp.WithHeaders(headers))
	}
	if to != Environment {
		base := strings.TrimSuffix(to, "/")
		traceOptions = append(traceOptions, otlptracehttp.WithEndpointURL(base+"/v1/traces"))
		metricOptions = append(metricOptions, otlpmetrichttp.WithEndpointURL(base+"/v1/metrics"))
	}
	if t.traces, err = otlptracehttp.New(ctx, traceOptions...); err != nil {
		return nil, err
	}
	exporter, err := otlpmetrichttp.New(ctx, metricOptions...)
	if err != nil {
		return nil, err
	}
	every := o.Every
	if every == 0 {
		every = metricsEvery
	}
	gather := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		numbers := t.numbers.Load()
		if numbers == nil {
			return nil, nil
		}
		all, err := (*numbers)(context.Background())
		if err != nil {
			return nil, err
		}
		return all.Gather()
	})
	reader := metric.NewPeriodicReader(exporter, metric.WithInterval(every), metric.WithTimeout(callTime),
		metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(gather))))
	t.metrics = metric.NewMeterProvider(metric.WithResource(t.resource), metric.WithReader(reader))
	// Metrics that could not be sent are sent next time, since they are sums.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		o.Log.Warn("telemetry: metrics were not sent", "error", tidy(err))
	}))
	t.genAI, err = newInstruments(t.metrics)
	return t, err
}

// newClient is a client that follows no redirect: another address would get what was meant for this one.
func newClient() (*http.Client, error) {
	secured := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := os.Getenv("OTEL_EXPORTER_OTLP_CERTIFICATE"); path != "" {
		text, err := os.ReadFile(path)
		if secured.RootCAs = x509.NewCertPool(); err == nil && !secured.RootCAs.AppendCertsFromPEM(text) {
			err = errors.New("it holds no certificate in PEM form")
		}
		if err != nil {
			return nil, fault.Wrap(err, fault.InvalidConfig,
				"Cannot read the certificates in %s, which OTEL_EXPORTER_OTLP_CERTIFICATE names.", path)
		}
	}
	return &http.Client{
		Timeout: callTime,
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: secured, MaxIdleConnsPerHost: 2, ForceAttemptHTTP2: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

// tidy is an error without the address that it was about, which may hold a key.
func tidy(err error) string {
	if in := (*url.Error)(nil); errors.As(err, &in) {
		err = in.Err
	}
	return clean(err.Error())
}

// Run sends metrics until ctx ends, and then a last time.
func (t *Telemetry) Run(ctx context.Context) error {
	if t == nil {
		return nil
	}
	<-ctx.Done()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTime)
	defer cancel()
	_ = t.metrics.Shutdown(last) // the collector may be away
	_ = t.traces.Shutdown(last)
	return nil
}

// Take sends the spans of entries. It returns nil when the collector has them.
func (t *Telemetry) Take(ctx context.Context, entries []ledger.Entry) error {
	var spans []span
	t.looked = map[string]int64{}
	for i := range entries {
		of, err := t.spansOf(ctx, &entries[i])
		if err != nil {
			return err
		}
		spans = append(spans, of...)
	}
	for from := 0; from < len(spans); from += maxSpans {
		part := spans[from:min(from+maxSpans, len(spans))]
		err := t.traces.ExportSpans(ctx, snapshots(part, t.resource))
		if err != nil && strings.Contains(err.Error(), partly) {
			t.log.Warn("the collector refuses some spans, which are not sent again", "error", tidy(err))
			err = nil
		}
		if err != nil {
			return errors.New(tidy(err))
		}
	}
	t.remember()
	for i := range spans {
		t.genAI.record(ctx, &spans[i])
	}
	return nil
}
