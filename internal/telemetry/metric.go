package telemetry

import (
	"cmp"
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
)

// instruments are the metrics of the GenAI conventions. They count what this process has sent spans of, since its
// start.
type instruments struct {
	tokens   metric.Int64Histogram
	duration metric.Float64Histogram
	models   map[string]bool
}

// maxModels is how many names of models are told apart, and other stands for the rest: agents choose them.
const (
	maxModels = 200
	other     = "(other)"
)

func newInstruments(provider *sdk.MeterProvider) (*instruments, error) {
	m := provider.Meter("signalbox")
	tokens, err := m.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit("{token}"),
		metric.WithDescription("Number of input and output tokens used."),
		metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304))
	duration, err2 := m.Float64Histogram("gen_ai.client.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls of models took."),
		metric.WithExplicitBucketBoundaries(.01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92))
	return &instruments{tokens, duration, map[string]bool{}}, errors.Join(err, err2)
}

// record counts the call of a model that a span is.
func (i *instruments) record(ctx context.Context, s *span) {
	c := s.call
	if c == nil {
		return
	}
	model := clean(c.Model)
	if !i.models[model] {
		if len(i.models) >= maxModels {
			model = other
		} else {
			i.models[model] = true
		}
	}
	of := []attribute.KeyValue{
		attribute.String("gen_ai.operation.name", operation(c.Call)),
		text("gen_ai.provider.name", cmp.Or(providers[c.Provider], c.Provider)),
		attribute.String("gen_ai.request.model", model),
	}
	count := func(n int64, kind string) {
		i.tokens.Record(ctx, n, metric.WithAttributes(append(of[:len(of):len(of)],
			attribute.String("gen_ai.token.type", kind))...))
	}
	count(c.InputTokens(), "input")
	count(c.OutputTokens(), "output")
	if s.failed != "" {
		of = append(of[:len(of):len(of)], attribute.String("error.type", s.failed))
	}
	i.duration.Record(ctx, s.to.Sub(s.from).Seconds(), metric.WithAttributes(of...))
}
